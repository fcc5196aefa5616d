"""What a run will be able to tell, said before it is paid for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from runner.verdict.align import NotComparable, Reference, find_reference
from runner.verdict.compare import (
    Spread,
    samples_to_decide,
    smallest_difference,
    standard_error_at,
    two_sided_z,
)
from runner.verdict.judge import POOLED
from runner.verdict.model import Reach, VerdictSettings
from runner.verdict.published import Published
from runner.verdict.rows import PublishedRows
from runner.verdict.wording import points, samples_text

DROPS = (0.02, 0.05, 0.10)
"""Differences whose power is shown."""
_MOSTLY = 0.5
_RARELY = 0.05

_DEFAULTS = VerdictSettings()
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Outlook:
    """What a comparison will be able to tell."""

    name: str
    problems: int
    run_samples: int
    published_samples: int
    standard_error: float
    """Of the difference."""
    power: tuple[tuple[float, float], ...]
    """(true difference, chance that it is called `differs`), at least: Holm's strictest step."""
    reproduced_if_equal: float
    """The chance of `reproduced` if nothing differs."""
    reach: Reach

    @property
    def sentence(self) -> str:
        """The outlook in one sentence."""
        chance = f"{self.reproduced_if_equal * 100:.0f} %"
        size = f"{self.name}, {self.problems} problems and {samples_text(self.run_samples)} of each"
        seen = f"a difference has to be {points(self.reach.smallest_difference)} points to be seen reliably"
        if self.reproduced_if_equal < _RARELY:
            return f"{size}: can say `differs` or nothing; mostly it cannot tell ({seen})"
        if self.reproduced_if_equal < _MOSTLY:
            return (
                f"{size}: mostly cannot tell; equal rates are called reproduced in {chance} of runs, {seen}"
            )
        return f"{size}: equal rates are called reproduced in {chance} of runs, {seen}"

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        return {
            "problems": self.problems,
            "run_samples": self.run_samples,
            "published_samples": self.published_samples,
            "standard_error": self.standard_error,
            "power": {f"{difference:g}": power for difference, power in self.power},
            "reproduced_if_equal": self.reproduced_if_equal,
            "reach": self.reach.as_document(),
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class Expectation:
    """What a whole run will be able to tell."""

    settings: VerdictSettings
    datasets: tuple[Outlook, ...]
    pooled: Outlook | None
    rows: bool
    """Whether variances are from published rows; else they are assumed from the published max@k."""
    notes: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        return {
            "settings": self.settings.as_document(),
            "published_rows": self.rows,
            "pooled": None if self.pooled is None else self.pooled.as_document(),
            "datasets": {outlook.name: outlook.as_document() for outlook in self.datasets},
            "notes": list(self.notes),
        }


def expect(
    profile: str,
    samples: int,
    problems: Mapping[str, Sequence[str]],
    published: Published,
    rows: PublishedRows | None = None,
    *,
    settings: VerdictSettings = _DEFAULTS,
) -> Expectation:
    """Return what a run of `samples` samples of the planned `problems` (ids by data set) will be able to
    tell."""
    reports = published.reference(profile)
    references: list[Reference] = []
    notes: list[str] = []
    for dataset, ids in problems.items():
        found = find_reference(dataset, tuple(ids), published, reports, rows)
        if isinstance(found, NotComparable):
            notes.append(f"{dataset}: {found.why}")
            continue
        if found.rows is None and found.assumed_variance is None:
            notes.append(f"{dataset}: nothing published tells the variance within problems")
            continue
        references.append(found)
        notes += [f"{dataset}: {note}" for note in found.notes]
    spreads = [reference.spread() for reference in references]
    family = len(references)
    return Expectation(
        settings=settings,
        datasets=tuple(
            _outlook(reference.dataset, [spread], samples, reference.samples, settings, family)
            for reference, spread in zip(references, spreads, strict=True)
        ),
        pooled=(
            _outlook(POOLED, spreads, samples, min(one.samples for one in references), settings, 1)
            if references
            else None
        ),
        rows=any(reference.rows is not None for reference in references),
        notes=tuple(notes),
    )


def _outlook(
    name: str,
    spreads: Sequence[Spread],
    run_samples: int,
    published_samples: int,
    settings: VerdictSettings,
    family: int,
) -> Outlook:
    error = standard_error_at(spreads, run_samples)
    alone, both = samples_to_decide(spreads, settings)
    return Outlook(
        name=name,
        problems=sum(spread.problems for spread in spreads),
        run_samples=run_samples,
        published_samples=published_samples,
        standard_error=error,
        power=tuple((drop, power_at(drop, error, settings.alpha / family)) for drop in DROPS),
        reproduced_if_equal=reproduced_if_equal(error, settings),
        reach=Reach(smallest_difference(error, settings, family=family), alone, both),
    )


def power_at(difference: float, standard_error: float, alpha: float) -> float:
    """Return the chance that a true difference is found at `alpha`, two-sided."""
    z = two_sided_z(1 - alpha)
    shift = difference / standard_error
    return _NORMAL.cdf(shift - z) + _NORMAL.cdf(-shift - z)


def reproduced_if_equal(standard_error: float, settings: VerdictSettings) -> float:
    """Return the chance that the interval lies within the margin if nothing differs."""
    room = settings.margin / standard_error - two_sided_z(settings.interval_level)
    return max(0.0, 2 * _NORMAL.cdf(room) - 1)
