"""Pictures of means with intervals, and of differences against the margin that the verdict asks for. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from runner.report.shapes import Plot, Scale, Shape, circle, diamond, line, number, rect, text, ticks
from runner.statistics import Z

WIDTH = 380.0
_LEFT, _RIGHT = 10.0, WIDTH - 10.0
_ROW = 62.0
_TOP = 14.0
_AXIS = 26.0
_PERCENT = 100
_ALL = "all problems"


@dataclass(frozen=True)
class Estimate:
    """A mean and what it may be off by; `low` and `high` are None where nothing tells."""

    middle: float
    low: float | None
    high: float | None
    what: str


@dataclass(frozen=True)
class Compared:
    """One row of either picture: a data set, or all problems.

    Of a run with trajectories missing there are two of each: with all of them wrong, and all of them right.
    """

    name: str
    run: tuple[Estimate, ...]
    published: Estimate | None
    points: tuple[Estimate, ...] = ()
    differences: tuple[Estimate, ...] = ()


def compared(results: Mapping[str, Any]) -> list[Compared]:
    """Return the rows of a results document; without a verdict there is nothing published in them."""
    verdict = results["verdict"]
    rows = []
    if verdict is not None and verdict["pooled"] is not None:
        rows.append(_judged(_ALL, verdict["pooled"], None))
    for name, dataset in results["datasets"].items():
        judgement = None if verdict is None else verdict["datasets"].get(name)
        if judgement is not None:
            rows.append(_judged(name, judgement, dataset["mean"]))
        elif (own := _own(dataset["mean"])) is not None:
            rows.append(Compared(name, (own,), None))
    return [row for row in rows if row.run or row.published or row.points]


def comparison_keys(judgement: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return where a judgement's comparisons stand in it, and what is assumed of missing trajectories."""
    if judgement["comparison"] is not None:
        return [("comparison", "")]
    keys = [
        ("comparison_if_unfinished_wrong", "if all missing are wrong"),
        ("comparison_if_unfinished_right", "if all missing are right"),
    ]
    return [one for one in keys if one[0] in judgement]


def _judged(name: str, judgement: Mapping[str, Any], mean: Mapping[str, Any] | None) -> Compared:
    found = [(judgement[key], assumed) for key, assumed in comparison_keys(judgement)]
    own = None if mean is None else _own(mean)
    run = tuple(
        _around(one["run_mean"], one["run_standard_error"], _joined("this run", assumed))
        for one, assumed in found
    )
    if own is not None and len(found) < 2:
        run = (own,)
    published = None
    if found:
        first = found[0][0]
        published = _around(first["published_mean"], first["published_standard_error"], "published")
    points = tuple(
        Estimate(one["mean"], None, None, f"published in {one['report']}")
        for one in judgement["published_points"]
    )
    differences = tuple(
        Estimate(one["difference"], one["interval"][0], one["interval"][1], _joined("difference", assumed))
        for one, assumed in found
    )
    return Compared(name, run, published, points, differences)


def _joined(what: str, assumed: str) -> str:
    return f"{what}, {assumed}" if assumed else what


def _own(mean: Mapping[str, Any]) -> Estimate | None:
    if mean["value"] is None:
        return None
    interval = mean["interval"]
    if interval is None:
        return Estimate(mean["value"], None, None, "this run")
    return Estimate(mean["value"], interval["low"], interval["high"], "this run")


def _around(middle: float, error: float | None, what: str) -> Estimate:
    if error is None:
        return Estimate(middle, None, None, what)
    return Estimate(middle, max(middle - Z * error, 0.0), min(middle + Z * error, 1.0), what)


def means_plot(rows: Sequence[Compared]) -> Plot:
    """Draw each row's mean of this run above the published one, both with their 95 % intervals."""
    estimates = [one for row in rows for one in (*row.run, *row.points, *_one(row.published))]
    low, high = _domain([value for one in estimates for value in _values(one)], least=0.05)
    scale = Scale(max(low, 0.0), min(high, 1.0), _LEFT, _RIGHT)
    shapes = list(_axis(scale, len(rows), lambda value: f"{value:g}"))
    for index, row in enumerate(rows):
        top = _TOP + index * _ROW
        shapes.append(text(_LEFT, top + 8, _short(row.name), "label"))
        for place, one in enumerate(row.run):
            shapes += _bar(one, scale, top + 24 + 9 * place, "run")
        at = top + 40 + 5 * (len(row.run) - 1)
        if row.published is not None:
            shapes += _bar(row.published, scale, at, "published")
        shapes += [
            diamond(scale(one.middle), at, 3.5, "point", title=f"{one.what}: {one.middle:.4f}")
            for one in row.points
        ]
    said = "; ".join(_said(row) for row in rows)
    return Plot(f"Means with 95 % intervals. {said}", WIDTH, _height(rows), tuple(shapes))


def differences_plot(rows: Sequence[Compared], margin: float, level: float) -> Plot | None:
    """Draw how far this run lies from the published means, with the margin within which it is reproduced."""
    shown = [row for row in rows if row.differences]
    if not shown:
        return None
    values = [value for row in shown for one in row.differences for value in _values(one)]
    low, high = _domain([*values, -margin, margin], least=0.02)
    scale = Scale(low, high, _LEFT, _RIGHT)
    bottom = _TOP + len(shown) * _ROW
    band = rect(scale(-margin), _TOP - 8, scale(margin) - scale(-margin), bottom - _TOP + 8, "margin")
    shapes = [band, *_axis(scale, len(shown), lambda value: f"{_PERCENT * value:+g}" if value else "0")]
    shapes.append(line(scale(0.0), _TOP - 8, scale(0.0), bottom, "zero"))
    for index, row in enumerate(shown):
        top = _TOP + index * _ROW
        shapes.append(text(_LEFT, top + 8, _short(row.name), "label"))
        for place, one in enumerate(row.differences):
            shapes += _bar(one, scale, top + 30 + 11 * place, "run")
    said = "; ".join(
        f"{row.name}: {', '.join(_said_points(one) for one in row.differences)}" for row in shown
    )
    label = (
        f"Differences in points with {_PERCENT * level:g} % intervals,"
        f" margin {_PERCENT * margin:g} points. {said}"
    )
    return Plot(label, WIDTH, _height(shown), tuple(shapes))


def _height(rows: Sequence[Compared]) -> float:
    return _TOP + len(rows) * _ROW + _AXIS


def _axis(scale: Scale, rows: int, written: Callable[[float], str]) -> Iterator[Shape]:
    bottom = _TOP + rows * _ROW
    yield line(scale.start, bottom, scale.end, bottom, "axis")
    for value in ticks(scale.low, scale.high, 6):
        x = scale(value)
        yield line(x, _TOP - 8, x, bottom, "grid")
        yield text(min(max(x, 14.0), WIDTH - 14.0), bottom + 16, written(value), "tick", anchor="middle")


def _bar(one: Estimate, scale: Scale, y: float, shown_as: str) -> Iterator[Shape]:
    title = (
        f"{one.what}: {one.middle:+.4f}"
        if one.what.startswith("difference")
        else (f"{one.what}: {one.middle:.4f}")
    )
    if one.low is not None and one.high is not None:
        title += f", {one.low:.4f} to {one.high:.4f}"
        low, high = scale(one.low), scale(one.high)
        yield line(low, y, high, y, f"whisker {shown_as}", title=title)
        yield line(low, y - 4, low, y + 4, f"whisker {shown_as}")
        yield line(high, y - 4, high, y + 4, f"whisker {shown_as}")
    yield circle(scale(one.middle), y, 4.5, f"dot {shown_as}", title=title)


def _domain(values: Sequence[float], *, least: float) -> tuple[float, float]:
    """Return round ends that hold all values, with a little room and at least `least` on either side."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.06, least / 2)
    step = 0.05 if high - low > 0.1 else 0.01
    return floor((low - room) / step) * step, ceil((high + room) / step) * step


def _values(one: Estimate) -> list[float]:
    return [one.middle, *(value for value in (one.low, one.high) if value is not None)]


def _one(estimate: Estimate | None) -> tuple[Estimate, ...]:
    return () if estimate is None else (estimate,)


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:39] + "…"


def _said(row: Compared) -> str:
    parts = [f"{one.what} {number(one.middle)}" for one in (*row.run, *_one(row.published))]
    return f"{row.name}: {', '.join(parts)}"


def _said_points(one: Estimate) -> str:
    return f"{_PERCENT * one.middle:+.1f}"
