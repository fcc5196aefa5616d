"""Simulated runs against simulated reports, judged by the verdict's own code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from runner.verdict.beta import fit_mean_and_max, outcome_variance
from runner.verdict.compare import Pair, Side, estimate, holm, p_value, within_margin
from runner.verdict.model import VerdictSettings
from runner.verdict.published import Figures, Published
from runner.verdict.solved import pass_at_k, permutation_range, posterior_range

Floats = NDArray[np.float64]

DROPS = (0.0, 0.02, 0.05, 0.10)
"""How far the run's true mean lies below the published one's."""
POOLED = "pooled"
_CHUNK_RUNS = 2000
_SEED = 20260811
_BISECTIONS = 50
_LEAST_RATE = 1e-12


@dataclass(frozen=True)
class Setting:
    """One profile, with or without published rows."""

    profile: str
    rows: bool

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.profile}, {'rows' if self.rows else 'no rows'}"


@dataclass
class Tally:
    """Sums over simulated runs of one setting, one data set (or all pooled) and one drop."""

    runs: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, runs: int, **hits: ArrayLike) -> None:
        """Count what happened in a batch."""
        self.runs += runs
        for name, values in hits.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(np.sum(values))

    def shares(self) -> dict[str, float]:
        """Return every sum over the number of runs."""
        return {name: total / self.runs for name, total in self.sums.items()}


@dataclass(frozen=True)
class _Shape:
    """What a data set's simulation needs."""

    name: str
    problems: int
    a: float
    b: float


Result = dict[tuple[Setting, str, float], Tally]


def simulate(published: Published, settings: VerdictSettings, *, runs: int, seed: int = _SEED) -> Result:
    """Simulate `runs` evaluations of every profile and drop, and judge each with and without rows."""
    rng = np.random.default_rng(seed)
    tallies: Result = {}
    shapes = _shapes(published)
    for profile in published.references:
        for drop in DROPS:
            for size in _chunks(runs):
                _simulate_chunk(rng, published, settings, profile, drop, size, shapes, tallies)
    return tallies


def _shapes(published: Published) -> list[_Shape]:
    report = published.reports[published.rows_of]
    shapes = []
    for name, problems in published.problems.items():
        a, b = _beta_of(report.figures[name], report.samples)
        shapes.append(_Shape(name, problems, a, b))
    return shapes


def _beta_of(figures: Figures, samples: int) -> tuple[float, float]:
    a, b = fit_mean_and_max(figures.mean, figures.max_at_k, samples)
    return float(a), float(b)


def _chunks(runs: int) -> Iterator[int]:
    for start in range(0, runs, _CHUNK_RUNS):
        yield min(_CHUNK_RUNS, runs - start)


def _simulate_chunk(
    rng: np.random.Generator,
    published: Published,
    settings: VerdictSettings,
    profile: str,
    drop: float,
    size: int,
    shapes: Sequence[_Shape],
    tallies: Result,
) -> None:
    reports = published.reference(profile)
    rows_report = published.reports[published.rows_of]
    run_samples = published.reports[profile].samples
    samples = sum(report.samples for report in reports)
    with_rows: dict[str, Pair] = {}
    without_rows: dict[str, Pair] = {}
    truths: dict[str, Floats] = {}
    for shape in shapes:
        rates = rng.beta(shape.a, shape.b, size=(size, shape.problems))
        run_rates = _lowered(rates, drop)
        truths[shape.name] = run_rates.mean(axis=-1) - rates.mean(axis=-1)
        run = Side(_draw(rng, run_rates, run_samples))
        rows = Side(_draw(rng, rates, rows_report.samples))
        mean = rows.mean * rows.samples
        if samples > rows.samples:
            mean = mean + _draw(rng, rates, samples - rows.samples).sum(axis=-1).mean(axis=-1)
        mean = mean / samples
        a, b = fit_mean_and_max(rows.mean, pass_at_k(rows, rows.samples), rows.samples)
        with_rows[shape.name] = Pair(run, mean, samples, rows)
        without_rows[shape.name] = Pair(run, mean, samples, None, outcome_variance(a, b))
        if drop == 0.0 and run_samples > 1:
            for setting, ranges in (
                (Setting(profile, rows=True), _permutation_hits(run, rows, settings)),
                (Setting(profile, rows=False), _posterior_hits(run, rows, settings)),
            ):
                tally = tallies.setdefault((setting, shape.name, drop), Tally())
                for name, hits in ranges.items():
                    tally.add(0, **{name: hits})
    for rows_known, pairs in ((True, with_rows), (False, without_rows)):
        _judge(Setting(profile, rows_known), drop, pairs, truths, settings, tallies)


def _permutation_hits(run: Side, rows: Side, settings: VerdictSettings) -> dict[str, ArrayLike]:
    hits = {}
    for k in range(2, run.samples + 1):
        found, value = permutation_range(run, rows, k, settings.interval_level), pass_at_k(run, k)
        hits[f"covers pass@{k}"] = _inside(value, found.low, found.high)
    return hits


def _posterior_hits(run: Side, fresh: Side, settings: VerdictSettings) -> dict[str, ArrayLike]:
    hits = {}
    for k in range(2, run.samples + 1):
        found = posterior_range(run, fresh.samples, k, settings.interval_level)
        hits[f"covers pass@{k}"] = _inside(pass_at_k(fresh, k), found.low, found.high)
    return hits


def _inside(value: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    return np.asarray((value >= low - 1e-9) & (value <= high + 1e-9))


def _judge(
    setting: Setting,
    drop: float,
    pairs: Mapping[str, Pair],
    truths: Mapping[str, Floats],
    settings: VerdictSettings,
    tallies: Result,
) -> None:
    names = list(pairs)
    problems = {name: pairs[name].run.problems for name in names}
    p = np.stack([p_value([pairs[name]])[0] for name in names], axis=-1)
    adjusted = holm(p)
    for index, name in enumerate(names):
        _tally(
            tallies.setdefault((setting, name, drop), Tally()),
            [pairs[name]],
            truths[name],
            p[:, index],
            adjusted[:, index],
            settings,
        )
    total = sum(problems.values())
    truth: Any = sum(truths[name] * (problems[name] / total) for name in names)
    pooled_p, _ = p_value(list(pairs.values()))
    _tally(
        tallies.setdefault((setting, POOLED, drop), Tally()),
        list(pairs.values()),
        truth,
        pooled_p,
        pooled_p,
        settings,
    )
    either = (adjusted < settings.alpha).any(axis=-1)
    tallies[setting, POOLED, drop].add(
        0, any_dataset_differs=either, anything_differs=either | (pooled_p < settings.alpha)
    )


def _tally(
    tally: Tally,
    pairs: Sequence[Pair],
    truth: Floats,
    p: Floats,
    adjusted: Floats,
    settings: VerdictSettings,
) -> None:
    found = estimate(pairs)
    low, high = found.interval(settings.interval_level)
    reproduced = within_margin(found, settings)
    tally.add(
        len(p),
        p_below_alpha=p < settings.alpha,
        differs=(adjusted < settings.alpha) & ~reproduced,
        reproduced=reproduced,
        covers_difference=(low <= truth) & (truth <= high),
    )


def _draw(rng: np.random.Generator, rates: Floats, samples: int) -> Floats:
    return (rng.random((*rates.shape, samples)) < rates[..., None]).astype(np.float64)


def _lowered(rates: Floats, drop: float) -> Floats:
    """Shift all rates of a run by one number on the logit scale, so that their mean falls by exactly `drop`.

    A worse model fails more where it was unsure, and hardly where it never failed.
    """
    if drop == 0.0:
        return rates
    odds = logit(np.clip(rates, _LEAST_RATE, 1 - _LEAST_RATE))
    target = rates.mean(axis=-1) - drop
    low, high = np.zeros(len(rates)), np.full(len(rates), 40.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        too_high = expit(odds - middle[:, None]).mean(axis=-1) > target
        low, high = np.where(too_high, middle, low), np.where(too_high, high, middle)
    return np.asarray(expit(odds - ((low + high) / 2)[:, None]))
