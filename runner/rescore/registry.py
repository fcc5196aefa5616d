"""The scorers: a line each."""

from enum import Enum


class Scorer(str, Enum):
    """Who compares an answer with the gold answer. Values are the names of files and options.

    Every one but the report's own is the module of its name in `runner/rescore/scorers/`.
    """

    EXACT = "exact"
    """The report's: equal after normalizing, or decimals close enough."""
    MATH_VERIFY = "math-verify"
    """Equal as mathematics, by the library of that name."""

    @property
    def module(self) -> str:
        """Name the module that holds it."""
        return f"runner.rescore.scorers.{self.value.replace('-', '_')}"
