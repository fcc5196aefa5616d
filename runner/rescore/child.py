"""The grader's process: reads answers as JSON lines from stdin, writes grades to stdout, one by one.

What it reads was written by a model. It may hang, eat memory or kill the interpreter: limits are set before
any library is imported, and the process that started this one ends it whenever an answer takes too long.
"""

import importlib
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from importlib import metadata
from types import FrameType
from typing import Any, TextIO

PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy")
EQUAL_OR_NOT = "math_verify"
UNREADABLE = "math_verify_unreadable_answer"
"""There is an answer, and no mathematics in it that could be read: wrong, and said to be so."""
READ_CHARS = 200
_DETAIL_CHARS = 300
_GRACE_S = 5
"""The parent ends a slow grader; this is for one whose parent is gone."""
_OWN_DELIMITERS = ("$", "\\(", "\\[", "\\boxed")
_FIRST = (("1", "1"), ("\\frac{1}{3}", "0.3"), ("5\\sqrt{2}", "\\sqrt{74}"))
_HARD_ERRORS = (MemoryError, RecursionError)

Grader = Callable[[str, str], dict[str, Any]]
Trace = Callable[[FrameType, str, Any], Any]


def main() -> None:
    """Grade until stdin ends. Arguments: bytes of address space, seconds an answer may take."""
    memory_bytes, wall_s = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it has nothing to write but to its pipe
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # What libraries print goes nowhere: the pipe carries grades alone.
    pipe = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        grade = _math_verify_grader()
        # The first answer pays for what the library makes on first use: that is no time of a model's answer.
        for answer, gold in _FIRST:
            grade(answer, gold)
    except ImportError as error:
        _say(pipe, {"missing": str(error)})
        return
    _say(pipe, {"ready": {name: metadata.version(name) for name in PACKAGES}})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # Not caught by Python: the kernel ends the process, also in the middle of a C function.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(wall_s) + _GRACE_S)
        _say(pipe, _graded(grade, request["answer"], request["gold"]))
        signal.alarm(0)


def _say(pipe: TextIO, message: dict[str, Any]) -> None:
    pipe.write(json.dumps(message) + "\n")
    pipe.flush()


def _graded(grade: Grader, answer: str, gold: str) -> dict[str, Any]:
    seen = _SwallowedErrors()
    try:
        with seen:
            told = grade(answer, gold)
    except MemoryError:
        return {"failure": "memory", "detail": ""}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is its failure, and is told
        return {"failure": "crash", "detail": f"{type(error).__name__}: {error}"[:_DETAIL_CHARS]}
    # Equal is equal, whatever was tried before. Anything less may only be what an error left of it.
    if told.get("score") == 1.0 or not seen.names:
        return told
    return {"failure": "memory" if MemoryError.__name__ in seen.names else "crash", "detail": seen.names[0]}


class _SwallowedErrors:
    """Notes errors that say nothing of an answer, and that the library takes for "not equal".

    It catches every exception in a dozen places: one that ran out of memory or stack would be scored 0, in
    silence. Only exceptions are traced, not lines, which costs little beside what sympy does.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def __enter__(self) -> None:
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        if sys.gettrace() is None:  # there was no memory even to note it
            self.names.append(MemoryError.__name__)
        sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _value: object) -> Trace:
        frame.f_trace_lines = False
        return self._note

    def _note(self, _frame: FrameType, event: str, value: Any) -> Trace:  # noqa: ANN401 - as sys.settrace has it
        if event == "exception" and issubclass(value[0], _HARD_ERRORS):
            self.names.append(value[0].__name__)
        return self._note


def _math_verify_grader() -> Grader:
    # By name, after the limits are set: an extra, which types are checked without.
    library = importlib.import_module("math_verify")
    configs = (library.LatexExtractionConfig(), library.ExprExtractionConfig())

    def read(text: str) -> tuple[list[Any], str | None]:
        # Times are limited from outside: the library's own limits are alarms that a C function outlasts.
        found = library.parse(_delimited(text), configs, parsing_timeout=None, raise_on_error=True)
        shown = next((one[:READ_CHARS] for one in found if isinstance(one, str)), None)
        return [one for one in found if not isinstance(one, str)], shown

    def grade(answer: str, gold: str) -> dict[str, Any]:
        golds, read_gold = read(gold)
        if not golds:
            return {"failure": "gold cannot be read", "detail": ""}
        answers, read_answer = read(answer)
        shown = {"read_answer": read_answer if answers else None, "read_gold": read_gold}
        if not answers:
            return {"score": 0.0, "method": UNREADABLE, **shown}
        equal = library.verify(golds, answers, timeout_seconds=None, raise_on_error=True)
        return {"score": 1.0 if equal else 0.0, "method": EQUAL_OR_NOT, **shown}

    return grade


def _delimited(text: str) -> str:
    r"""Return an answer as the mathematics that it is: without delimiters, `2\sqrt{3}` is read as 2."""
    return text if any(one in text for one in _OWN_DELIMITERS) else f"${text}$"


if __name__ == "__main__":
    main()
