"""Scorers beside the report's own, a module each: `math-verify` is `math_verify.py`.

A module is one scorer when it holds `SCORER` and its name stands in `runner.rescore.registry.Scorer`. It is
loaded in the grader's process alone (`runner.rescore.child`), behind that process's limits of memory and
time; so it may hang, crash or eat memory, and costs its own answer a score and no other. Nothing is
imported by `SCORER` itself but what is needed to say what it is: a library is imported by `load`.
"""

from collections.abc import Callable
from dataclasses import dataclass

Pair = tuple[str, str]
"""An answer and the gold answer."""


@dataclass(frozen=True)
class Graded:
    """What a scorer makes of one answer. `read_*` is what of a text it took for mathematics, if it tells."""

    score: float
    method: str
    read_answer: str | None = None
    read_gold: str | None = None


class UnreadableGoldError(Exception):
    """The gold answer means nothing to the scorer: its failure, and no score of the model's."""


Compare = Callable[[str, str], Graded]
"""Compares an answer with the gold answer. Whatever it raises is its failure, and no score."""


@dataclass(frozen=True)
class ScorerModule:
    """What a module tells of its scorer."""

    load: Callable[[], Compare]
    """Imports what it needs, behind the limits; an `ImportError` says that it is not installed."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions stand beside the scores."""
    extra: str | None = None
    """Of `recount[EXTRA]`, where an extra brings them."""
    first: tuple[Pair, ...] = ()
    """Compared before the first answer, and not looked at: for what a library makes on first use."""
