"""The kinds of engines that a profile can name: a line each."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.engines.kind import EngineKind, EngineSection

MODULES = (
    "runner.engines.scripted_kind",
    "runner.engines.openai_kind",
    "runner.engines.vllm.kind",
)
"""Each holds `KIND`."""

_LOADED: tuple[EngineKind[Any], ...] = tuple(import_module(name).KIND for name in MODULES)
KINDS: Mapping[str, EngineKind[Any]] = {one.name: one for one in _LOADED}


def kind_of(settings: EngineSection) -> EngineKind[Any]:
    """Return the kind that these settings are of."""
    return KINDS[settings.kind]


def kinds_in_words() -> str:
    """Name every kind for a person, what serves a real model first."""
    *first, last = reversed(list(KINDS))
    return f"{', '.join(first)} or {last}"
