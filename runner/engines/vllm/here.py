"""The fit of a profile's engines to the GPUs of this machine, before anything is started."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.engines.vllm.checkpoint import is_hub_id
from runner.engines.vllm.fit import FITTED, EngineFit, fit_engines
from runner.engines.vllm.gpu import Gpu, visible_gpus
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.sizes import measure
from runner.engines.vllm.wire import Device

CLUSTER_VARIABLE = "RAY_ADDRESS"
_SECTION = "engine."


def is_on_cluster() -> bool:
    """Say whether engines are to be on a Ray cluster that is there already."""
    return os.environ.get(CLUSTER_VARIABLE) not in {None, "", "local"}


def chosen(overrides: Mapping[str, Any]) -> frozenset[str]:
    """Return the engine's settings that somebody chose in the place of the profile's: they stay."""
    return frozenset(name for name in FITTED if f"{_SECTION}{name}" in overrides)


def fit_here(
    settings: VllmSettings,
    overrides: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    gpus: Callable[[], tuple[Gpu, ...]] = visible_gpus,
) -> EngineFit | None:
    """Return the engines that this machine gets. `checkpoint` is where one of the hub was fetched to.

    None where there is nothing to fit by: no GPU (which is told when engines start), a Ray cluster, or a
    model of unknown size. Raises `UserError` where not one engine fits.
    """
    if settings.device is Device.CPU or is_on_cluster():
        return None
    found = gpus()
    directory = checkpoint if is_hub_id(settings.model) else Path(settings.model)
    size = measure(settings.model, directory, dtype=settings.dtype) if found else None
    return None if size is None else fit_engines(found, size, settings, chosen(overrides))
