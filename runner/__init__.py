"""Recount: reproduces a published agentic score."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.api import open_run

__version__ = "0.1.0"
__all__ = ["__version__", "open_run"]


def __getattr__(name: str) -> object:
    """Import `open_run` when it is asked for: `import runner` itself imports nothing."""
    if name == "open_run":
        from runner.api import open_run  # noqa: PLC0415 - see above

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
