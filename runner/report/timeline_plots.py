"""Pictures of a timeline: a band an engine, all of one width. Labels stand beside them in the page."""

from collections.abc import Sequence

from runner.report.figures import span
from runner.report.shapes import Plot, Shape, line, path, rect
from runner.report.timeline import BINS, EngineLine, Timeline

_WIDTH, _HEIGHT, _STRIP = 1000.0, 44.0, 6.0
_STEP = _WIDTH / BINS
_SOME_IDLE = 0.005


def engine_plot(one: EngineLine, timeline: Timeline) -> Plot:
    """Draw an engine's batch, and below it a strip where it had nothing to do."""
    top = timeline.largest_batch
    floor_y = _HEIGHT - _STRIP - 2
    shapes = _area(one.batch, top, floor_y, "batch")
    for index, idle in enumerate(one.idle):
        if idle is not None and idle > _SOME_IDLE:
            tall = idle * _STRIP
            shapes.append(rect(index * _STEP, _HEIGHT - tall, _STEP, tall, "idle"))
    shapes.append(line(0, floor_y, _WIDTH, floor_y, "axis"))
    shapes += _marks(timeline)
    for loss in one.losses:
        x = _at(loss.at_s, timeline)
        shapes.append(line(x, 0, x, _HEIGHT, "loss", title=f"lost at {span(loss.at_s)}: {loss.cause}"))
    told = [value for value in one.batch if value is not None]
    idle_told = [value for value in one.idle if value is not None]
    label = f"Engine {one.name}:"
    label += (
        f" batch {sum(told) / len(told):.1f} on average, {max(told):.1f} at most" if told else " no batch"
    )
    label += f", idle {sum(idle_told) / len(idle_told):.0%}" if idle_told else ""
    label += f", losses {len(one.losses)}" if one.losses else ""
    return Plot(label, _WIDTH, _HEIGHT, tuple(shapes), stretch=True)


def line_plot(values: Sequence[float | None], timeline: Timeline, label: str, shown_as: str) -> Plot:
    """Draw one figure of the whole run."""
    most = max((value for value in values if value is not None), default=0.0)
    shapes = _area(values, most or 1.0, _HEIGHT - 1, shown_as)
    shapes += [line(0, _HEIGHT - 1, _WIDTH, _HEIGHT - 1, "axis"), *_marks(timeline)]
    return Plot(label, _WIDTH, _HEIGHT, tuple(shapes), stretch=True)


def _area(values: Sequence[float | None], most: float, floor_y: float, shown_as: str) -> list[Shape]:
    """Draw steps as areas; where nothing is told there is a gap."""
    shapes: list[Shape] = []
    points: list[tuple[float, float]] = []
    for index, value in enumerate([*values, None]):
        if value is None:
            if points:
                begin_x, end_x = points[0][0], points[-1][0]
                shapes.append(path([(begin_x, floor_y), *points, (end_x, floor_y)], shown_as, closed=True))
            points = []
            continue
        y = floor_y - min(value / most, 1.0) * (floor_y - 2)
        points += [(index * _STEP, y), ((index + 1) * _STEP, y)]
    return shapes


def _marks(timeline: Timeline) -> list[Shape]:
    return [
        line(_at(one, timeline), 0, _at(one, timeline), _HEIGHT, "resumed", title=f"went on at {span(one)}")
        for one in timeline.resumed_at_s
    ]


def _at(moment_s: float, timeline: Timeline) -> float:
    return min(moment_s / timeline.work_s, 1.0) * _WIDTH
