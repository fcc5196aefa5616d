"""`math-verify`: equal as mathematics, by the library of that name."""

import importlib
from typing import Any

from runner.rescore.scorers import Compare, Graded, ScorerModule, UnreadableGoldError

EQUAL_OR_NOT = "math_verify"
UNREADABLE = "math_verify_unreadable_answer"
"""There is an answer, and no mathematics in it that could be read: wrong, and said to be so."""
READ_CHARS = 200
_OWN_DELIMITERS = ("$", "\\(", "\\[", "\\boxed")


def load() -> Compare:
    """Return the library's comparison."""
    # By name: an extra, which types are checked without.
    library = importlib.import_module("math_verify")
    configs = (library.LatexExtractionConfig(), library.ExprExtractionConfig())

    def read(text: str) -> tuple[list[Any], str | None]:
        # Times are limited from outside: the library's own limits are alarms that a C function outlasts.
        found = library.parse(delimited(text), configs, parsing_timeout=None, raise_on_error=True)
        shown = next((one[:READ_CHARS] for one in found if isinstance(one, str)), None)
        return [one for one in found if not isinstance(one, str)], shown

    def compare(answer: str, gold: str) -> Graded:
        golds, read_gold = read(gold)
        if not golds:
            raise UnreadableGoldError
        answers, read_answer = read(answer)
        if not answers:
            return Graded(0.0, UNREADABLE, None, read_gold)
        equal = library.verify(golds, answers, timeout_seconds=None, raise_on_error=True)
        return Graded(1.0 if equal else 0.0, EQUAL_OR_NOT, read_answer, read_gold)

    return compare


def delimited(text: str) -> str:
    r"""Return an answer as the mathematics that it is: without delimiters, `2\sqrt{3}` is read as 2."""
    return text if any(one in text for one in _OWN_DELIMITERS) else f"${text}$"


SCORER = ScorerModule(
    load,
    packages=("math-verify", "latex2sympy2_extended", "sympy"),
    extra="math-verify",
    first=(("1", "1"), ("\\frac{1}{3}", "0.3"), ("5\\sqrt{2}", "\\sqrt{74}")),
)
