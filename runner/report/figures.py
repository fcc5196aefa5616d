"""Figures of the results document as the page shows them: each says where in the document it stands.

A figure is shown by its place alone, so that none can be typed, rounded or worked out otherwise than in
`evaluation_results.json`; a reader (or a test) finds it there by the pointer that the page carries.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from runner.views import words

NOT_TOLD = "none"
_PERCENT = 100


class Kind(str, Enum):
    """How a figure is written."""

    PLAIN = "plain"
    COUNT = "count"
    SCORE = "score"
    ERROR = "error"
    POINTS = "points"
    LEVEL = "level"
    SHARE = "share"
    SECONDS = "seconds"
    RATE = "rate"
    BYTES = "bytes"
    P = "p"
    MOMENT = "moment"


def pointer(path: Sequence[str]) -> str:
    """Return a JSON pointer in its URI form (RFC 6901): ASCII, whatever a data set is called."""
    return "#" + "".join(
        # An engine may be called anything, also what is no text.
        "/" + quote(part.replace("~", "~0").replace("/", "~1"), safe="~", errors="surrogatepass")
        for part in path
    )


def resolve(document: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON value of the document
    """Return what stands at a place; raise `KeyError` where nothing does."""
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


class Figures:
    """Shows figures of one results document."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        """`results` is the whole document."""
        self._results = results

    def show(self, path: Sequence[object], kind: str = Kind.PLAIN.value) -> Markup:
        """Return one figure as an element that carries its exact value and its place."""
        parts = [str(part) for part in path]
        value = resolve(self._results, parts)
        if value is None:
            return Markup('<data class="not-told" data-of="{}" value="">{}</data>').format(
                pointer(parts), NOT_TOLD
            )
        return Markup('<data data-of="{}" value="{}">{}</data>').format(
            pointer(parts), _exact(value), written(value, kind)
        )


def written(value: float, kind: str) -> str:
    """Return a number as a person reads it."""
    return _WRITTEN[Kind(kind)](value)


def moment(at: float) -> str:
    """Return a moment (seconds since the epoch) in UTC."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds: float) -> str:
    """Return a duration: exact where it is short, by the clock where it is long."""
    return words.latency(seconds) if seconds < 60 else words.duration(seconds)


def _exact(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


_WRITTEN: dict[Kind, Callable[[float], str]] = {
    Kind.PLAIN: str,
    Kind.COUNT: lambda value: f"{value:,}",
    Kind.SCORE: lambda value: f"{value:.4f}",
    Kind.ERROR: lambda value: f"±{value:.4f}",
    Kind.POINTS: lambda value: f"{_PERCENT * value:+.2f}",
    Kind.LEVEL: lambda value: f"{_PERCENT * value:g} %",
    Kind.SHARE: lambda value: f"{_PERCENT * value:.1f} %",
    Kind.SECONDS: span,
    Kind.RATE: lambda value: f"{value:,.1f}",
    Kind.BYTES: lambda value: words.amount(value, of_bytes=True),
    Kind.P: _p,
    Kind.MOMENT: moment,
}
