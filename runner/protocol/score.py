"""What a completion, and with it a trajectory, scores under the report's exact scorer."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from enum import Enum

from runner.protocol.answer import explicit_answer, final_answer_line, normalize_answer, strip_think

SCORE_METHOD_PREFIX = "math_paper_react_cli_"
"""What results files of the original put before every score method."""

TOLERANCE = Decimal("1e-8")
"""How far apart two decimals may be and still be the same answer (inclusive)."""


class Termination(str, Enum):
    """Why a trajectory ended. Values are the report's and stand in results files."""

    FINAL_ANSWER = "final_answer"
    MAX_TURNS = "max_turns"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    REQUEST_ERROR = "request_error"


class ScoreMethod(str, Enum):
    """How a score came about. Values are the report's, without `SCORE_METHOD_PREFIX`."""

    EXACT_FALLBACK = "exact_fallback"
    MISSING_FINAL_ANSWER = "missing_final_answer"
    NO_BASH_TOOL_USE = "no_bash_tool_use"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    REQUEST_ERROR = "request_error"


class AnswerStatus(str, Enum):
    """Whether the last completion has a final answer line. Values are the report's."""

    ANSWERED = "answered"
    MISSING_FINAL_ANSWER = "missing_final_answer"


@dataclass(frozen=True)
class Score:
    """A score, 0 or 1, and how it came about."""

    value: float
    method: ScoreMethod


def score_exact(text: str, gold: str) -> Score:
    """Score a completion against the gold answer: equal after normalizing, or decimals close enough."""
    answer = explicit_answer(text)
    if answer is None:
        return Score(0.0, ScoreMethod.MISSING_FINAL_ANSWER)
    ours, theirs = normalize_answer(answer), normalize_answer(gold)
    correct = ours == theirs or _close(ours, theirs)
    return Score(1.0 if correct else 0.0, ScoreMethod.EXACT_FALLBACK)


def score_trajectory(last_completion: str, gold: str, *, used_bash: bool, termination: Termination) -> Score:
    """Score a trajectory by its last completion, also where its turns ran out.

    A prompt that outgrew the context or was refused scores 0, and so does an answer without any use of
    bash: the protocol forbids to answer from the problem alone.
    """
    if termination is Termination.CONTEXT_LENGTH_EXCEEDED:
        return Score(0.0, ScoreMethod.CONTEXT_LENGTH_EXCEEDED)
    if termination is Termination.REQUEST_ERROR:
        return Score(0.0, ScoreMethod.REQUEST_ERROR)
    if not used_bash:
        return Score(0.0, ScoreMethod.NO_BASH_TOOL_USE)
    return score_exact(last_completion, gold)


def answer_status(completion: str) -> AnswerStatus:
    """Say whether `completion`, thinking aside, has a final answer line; a box alone does not count."""
    if final_answer_line(strip_think(completion)) is None:
        return AnswerStatus.MISSING_FINAL_ANSWER
    return AnswerStatus.ANSWERED


def _close(ours: str, theirs: str) -> bool:
    context = _default_context()
    left, right = _decimal(ours, context), _decimal(theirs, context)
    if left is None or right is None:
        return False
    try:
        return context.abs(context.subtract(left, right)) <= TOLERANCE
    except ArithmeticError:  # a difference beyond the exponent range is no small one
        return False


def _decimal(normalized: str, context: Context) -> Decimal | None:
    """Read a finite decimal or a fraction of two, split at its first `/`; None for anything else.

    The text is normalized a second time, as in the original: that takes a second layer of boxes, braces
    and full stops. `Decimal` itself reads underscores, exponents and digits of any script. A quotient
    beyond the exponent range is none: the original has no answer for it.
    """
    text = normalize_answer(normalized)
    try:
        if "/" in text:
            dividend, divisor = text.split("/", 1)
            value = context.divide(Decimal(dividend, context), Decimal(divisor, context))
        else:
            value = Decimal(text, context)
    except (ArithmeticError, ValueError):
        return None
    return value if value.is_finite() else None


def _default_context() -> Context:
    """Return Python's default context, in full: the process's own may have been changed by a library."""
    return Context(
        prec=28,
        rounding=ROUND_HALF_EVEN,
        Emin=-999_999,
        Emax=999_999,
        capitals=1,
        clamp=0,
        flags=[],
        traps=[InvalidOperation, DivisionByZero, Overflow],
    )
