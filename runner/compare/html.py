"""A comparison as one page: no script, no network, everything that a model wrote escaped."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil

from jinja2 import Environment, StrictUndefined

from runner import __version__
from runner.clean import clean_text
from runner.compare.model import Difference, ErrorOfDifference, RunComparison, ScorePair
from runner.compare.text import interval_text, p_text, points

_TEMPLATE = "comparison.html.j2"
_STYLE = "comparison.css"
_TEXT_CHARS = 2000
_ANSWER_CHARS = 300
_LEAST_SCALE = 0.05
"""A plot shows five points each way at least: chance of a tenth of a point is not drawn as a gulf."""


@dataclass(frozen=True)
class Bar:
    """Where a difference and its interval stand in a plot, as parts of a hundred of its width."""

    low: float
    middle: float
    high: float


def comparison_page(comparisons: Sequence[RunComparison], scored_by: str) -> str:
    """Return the page; its policy allows this one style sheet and nothing else."""
    # Newlines as browsers see them: the policy holds the hash of exactly these bytes.
    style = files("runner.compare").joinpath(_STYLE).read_text(encoding="utf-8").replace("\r\n", "\n")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    # Strict about names that a template has and nothing gives, and escaping whatever it puts in.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        clean=_clean, points=points, interval=interval_text, p=p_text, answer=_answer, name=_name
    )
    template = environment.from_string(
        files("runner.compare").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    )
    return template.render(
        comparisons=comparisons,
        scored_by=scored_by,
        several=len(comparisons) > 1,
        version=__version__,
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        bars=_bars,
        question=_question,
        gold=_gold,
    )


def _bars(difference: Difference, shown: Sequence[Difference]) -> list[tuple[str, Bar]]:
    scale = _scale(shown)
    named = (("same problems", difference.same_problems), ("new problems", difference.new_problems))
    return [
        (name, _bar(difference.difference, error.interval, scale))
        for name, error in named
        if error.interval is not None
    ]


def _scale(shown: Sequence[Difference]) -> float:
    ends = [abs(end) for one in shown for end in _ends(one.same_problems) + _ends(one.new_problems)]
    widest = max([*ends, *(abs(one.difference) for one in shown), _LEAST_SCALE])
    return ceil(widest * 20) / 20


def _ends(error: ErrorOfDifference) -> list[float]:
    return [] if error.interval is None else list(error.interval)


def _bar(middle: float, interval: tuple[float, float], scale: float) -> Bar:
    low, high = interval
    return Bar(*(round(50 + 50 * one / scale, 2) for one in (low, middle, high)))


def _question(comparison: RunComparison, pair: ScorePair) -> str:
    return comparison.baseline.state.problems(pair.key.dataset)[pair.key.problem_id].question


def _gold(comparison: RunComparison, pair: ScorePair) -> str:
    return comparison.baseline.state.problems(pair.key.dataset)[pair.key.problem_id].answer


def _clean(text: object) -> str:
    return clean_text(str(text), keep_lines=True, limit_chars=_TEXT_CHARS)


def _answer(text: object) -> str:
    return clean_text(str(text), keep_lines=False, limit_chars=_ANSWER_CHARS)


def _name(pair: ScorePair) -> str:
    return _answer(f"{pair.key.dataset}/{pair.key.problem_id}:{pair.key.sample}")
