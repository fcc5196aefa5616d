"""What plots are made of: a few SVG shapes as data. The template writes them, and escapes all of it.

Shapes have classes and no style: the page's policy allows no style but its own sheet, and that knows light
from dark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil, floor, isfinite, log10

_DIGITS = 2
"""Of coordinates. A hundredth of a pixel is enough, and keeps pages small and the same everywhere."""
_STEPS = (1.0, 2.0, 5.0, 10.0)


class Tag(str, Enum):
    """The elements that plots use."""

    RECT = "rect"
    LINE = "line"
    PATH = "path"
    CIRCLE = "circle"
    TEXT = "text"


@dataclass(frozen=True)
class Shape:
    """One element; `title` is shown on hovering."""

    tag: Tag
    attributes: Mapping[str, str]
    text: str = ""
    title: str = ""


@dataclass(frozen=True)
class Plot:
    """A picture, and what it says to who does not see it.

    `stretch` is for pictures without text: they take the width there is.
    """

    label: str
    width: float
    height: float
    shapes: tuple[Shape, ...]
    stretch: bool = False

    @property
    def view_box(self) -> str:
        """The attribute of the same name."""
        return f"0 0 {number(self.width)} {number(self.height)}"


def number(value: float) -> str:
    """Return a coordinate."""
    return f"{round(value, _DIGITS):g}" if isfinite(value) else "0"


def rect(
    x: float, y: float, width: float, height: float, shown_as: str, *, title: str = "", round_by: float = 0
) -> Shape:
    """Return a rectangle."""
    attributes = {"x": x, "y": y, "width": max(width, 0.0), "height": max(height, 0.0)}
    rounded = {"rx": number(round_by)} if round_by else {}
    return Shape(Tag.RECT, {**_numbers(attributes), **rounded, "class": shown_as}, title=title)


def line(x1: float, y1: float, x2: float, y2: float, shown_as: str, *, title: str = "") -> Shape:
    """Return a line."""
    attributes = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    return Shape(Tag.LINE, {**_numbers(attributes), "class": shown_as}, title=title)


def circle(x: float, y: float, radius: float, shown_as: str, *, title: str = "") -> Shape:
    """Return a dot."""
    return Shape(Tag.CIRCLE, {**_numbers({"cx": x, "cy": y, "r": radius}), "class": shown_as}, title=title)


def diamond(x: float, y: float, radius: float, shown_as: str, *, title: str = "") -> Shape:
    """Return a dot of another form: forms tell apart what colours alone must not."""
    corners = [(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)]
    return path(corners, shown_as, closed=True, title=title)


def path(
    points: Iterable[tuple[float, float]], shown_as: str, *, closed: bool = False, title: str = ""
) -> Shape:
    """Return straight lines through points."""
    steps = [f"{'L' if index else 'M'}{number(x)} {number(y)}" for index, (x, y) in enumerate(points)]
    return Shape(Tag.PATH, {"d": "".join(steps) + ("Z" if closed else ""), "class": shown_as}, title=title)


def text(x: float, y: float, words: str, shown_as: str, *, anchor: str = "start") -> Shape:
    """Return a label."""
    return Shape(
        Tag.TEXT, {**_numbers({"x": x, "y": y}), "text-anchor": anchor, "class": shown_as}, text=words
    )


def _numbers(values: Mapping[str, float]) -> dict[str, str]:
    return {name: number(value) for name, value in values.items()}


@dataclass(frozen=True)
class Scale:
    """From values to places, in a straight line."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value stands; beyond an end it stands at that end."""
        if self.high <= self.low:
            return self.start
        share = min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)
        return self.start + share * (self.end - self.start)


def step_of(length: float, most: int) -> float:
    """Return a round step that goes into `length` at most `most` times."""
    if length <= 0:
        return 1.0
    wanted = length / max(most, 1)
    power = 10.0 ** floor(log10(wanted))
    return next(one * power for one in _STEPS if one * power >= wanted * 0.999999)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values from `low` to `high`."""
    step = step_of(high - low, most)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]
