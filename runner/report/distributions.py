"""How turns, tokens and time are distributed over scored trajectories: histograms and quantiles. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from runner.report.outcomes import Outcome, outcome_of
from runner.report.shapes import Plot, Scale, Shape, line, rect, step_of, text
from runner.state import RunState, TrajectoryState

_WIDTH, _HEIGHT = 340.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 30.0, _WIDTH - 8.0, 10.0, _HEIGHT - 22.0
_MOST_BARS = 36
_STACK = (Outcome.RIGHT, Outcome.PARTLY, Outcome.WRONG, Outcome.LIMIT)


@dataclass(frozen=True)
class Spread:
    """Quantiles of one figure over trajectories; each is a trajectory's own value, none is interpolated."""

    count: int
    least: float
    median: float
    p90: float
    most: float
    mean: float


@dataclass(frozen=True)
class Distribution:
    """One figure of one data set, with its picture and the numbers behind it."""

    dataset: str
    spread: Spread
    plot: Plot
    bars: tuple[tuple[float, float, int], ...]
    """From, to (not included, but for the last), how many."""


@dataclass(frozen=True)
class Measure:
    """A figure of a trajectory. `whole`: it is counted, so that bars never split a number."""

    name: str
    unit: str
    kind: str
    of: Callable[[TrajectoryState], float]
    whole: bool = True


def _elapsed_s(one: TrajectoryState) -> float:
    return 0.0 if one.terminated is None else one.terminated.elapsed_s


def _generated(one: TrajectoryState) -> float:
    return 0 if one.terminated is None else one.terminated.generated_tokens


def _context(one: TrajectoryState) -> float:
    return 0 if one.terminated is None else one.terminated.max_context_tokens


MEASURES = (
    Measure("Turns", "turns", "count", lambda one: len(one.turns)),
    Measure("Tokens generated", "tokens", "count", _generated),
    Measure("Largest context", "tokens", "count", _context),
    Measure("Time", "s", "seconds", _elapsed_s, whole=False),
)


def distributions(state: RunState) -> list[tuple[Measure, list[Distribution]]]:
    """Return each measure with every data set that has scored trajectories."""
    scored: dict[str, list[TrajectoryState]] = {record.name: [] for record in state.datasets()}
    for key, one in sorted(state.trajectories.items()):
        if one.terminated is not None:
            scored[key.dataset].append(one)
    return [
        (measure, [_distribution(name, measure, found) for name, found in scored.items() if found])
        for measure in MEASURES
    ]


def _distribution(dataset: str, measure: Measure, found: Sequence[TrajectoryState]) -> Distribution:
    values = [(measure.of(one), outcome_of(one)) for one in found]
    edges = _edges([value for value, _ in values], whole=measure.whole)
    stacks = [_counts(values, low, high, last=high == edges[-1]) for low, high in _pairs(edges)]
    spread = spread_of([value for value, _ in values])
    bars = tuple(
        (low, high, sum(stack.values())) for (low, high), stack in zip(_pairs(edges), stacks, strict=True)
    )
    plot = _histogram(dataset, measure, edges, stacks, spread)
    return Distribution(dataset, spread, plot, bars)


def spread_of(values: Sequence[float]) -> Spread:
    """Return the quantiles of at least one value."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(ceil(share * len(ordered)) - 1, 0)]

    return Spread(
        count=len(ordered),
        least=ordered[0],
        median=at(0.5),
        p90=at(0.9),
        most=ordered[-1],
        mean=sum(ordered) / len(ordered),
    )


def _edges(values: Sequence[float], *, whole: bool) -> list[float]:
    low, high = min(values), max(values)
    step = step_of(high - low, _MOST_BARS) if high > low else 1.0
    step = max(step, 1.0) if whole else step
    start = low // step * step
    count = max(int((high - start) // step) + 1, 1)
    return [round(start + index * step, 9) for index in range(count + 1)]


def _pairs(edges: Sequence[float]) -> list[tuple[float, float]]:
    return list(pairwise(edges))


def _counts(
    values: Sequence[tuple[float, Outcome]], low: float, high: float, *, last: bool
) -> dict[Outcome, int]:
    inside = [outcome for value, outcome in values if low <= value < high or (last and value == high)]
    return {outcome: inside.count(outcome) for outcome in _STACK if outcome in inside}


def _histogram(
    dataset: str,
    measure: Measure,
    edges: Sequence[float],
    stacks: Sequence[dict[Outcome, int]],
    spread: Spread,
) -> Plot:
    tallest = max(sum(stack.values()) for stack in stacks)
    across, up = Scale(edges[0], edges[-1], _LEFT, _RIGHT), Scale(0, tallest, _BOTTOM, _TOP)
    shapes: list[Shape] = []
    for (low, high), stack in zip(_pairs(edges), stacks, strict=True):
        below = 0
        for outcome, count in stack.items():
            top = up(below + count)
            shapes.append(
                rect(
                    across(low) + 0.5,
                    top,
                    across(high) - across(low) - 1,
                    up(below) - top,
                    f"bar {outcome.value}",
                    title=f"{_range(measure, low, high)}: {count} {outcome.words}",
                )
            )
            below += count
    # A bar of one number stands for that number, which is in its middle.
    single = measure.whole and edges[1] - edges[0] <= 1
    median_x = across(spread.median + (0.5 if single else 0.0))
    shapes += [
        line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis"),
        line(median_x, _TOP, median_x, _BOTTOM, "median", title="median"),
        text(_LEFT - 5, _TOP + 8, str(tallest), "tick", anchor="end"),
        text(_LEFT - 5, _BOTTOM, "0", "tick", anchor="end"),
        text(_LEFT, _HEIGHT - 6, _edge(edges[0]), "tick"),
        text((_LEFT + _RIGHT) / 2, _HEIGHT - 6, measure.unit, "tick", anchor="middle"),
        text(_RIGHT, _HEIGHT - 6, _edge(edges[-1] - single), "tick", anchor="end"),
    ]
    label = (
        f"{measure.name} in {dataset}, {spread.count} trajectories: {_edge(spread.least)} to"
        f" {_edge(spread.most)} {measure.unit}, median {_edge(spread.median)}"
    )
    return Plot(label, _WIDTH, _HEIGHT, tuple(shapes))


def _range(measure: Measure, low: float, high: float) -> str:
    if measure.whole and high - low <= 1:
        return f"{_edge(low)} {measure.unit}"
    return f"{_edge(low)} to {_edge(high)} {measure.unit}"


def _edge(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
