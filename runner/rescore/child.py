"""The grader's process: reads answers as JSON lines from stdin, writes grades to stdout, one by one.

What it reads was written by a model. It may hang, eat memory or kill the interpreter: limits are set before
the scorer's module imports any library, and the process that started this one ends it whenever an answer
takes too long.
"""

import importlib
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from runner.rescore.model import Failure
from runner.rescore.scorers import Compare, ScorerModule, UnreadableGoldError

if TYPE_CHECKING:
    from _typeshed import TraceFunction

_DETAIL_CHARS = 300
_GRACE_S = 5
"""The parent ends a slow grader; this is for one whose parent is gone."""
_HARD_ERRORS = (MemoryError, RecursionError)

Trace = Callable[[FrameType, str, Any], Any]


def main() -> None:
    """Grade until stdin ends. Arguments: the scorer's module, bytes of address space, seconds an answer."""
    name, memory_bytes, wall_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it has nothing to write but to its pipe
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # What libraries print goes nowhere: the pipe carries grades alone.
    pipe = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    scorer: ScorerModule = importlib.import_module(name).SCORER
    try:
        compare = scorer.load()
        # The first answer pays for what a library makes on first use: that is no time of a model's answer.
        for answer, gold in scorer.first:
            compare(answer, gold)
    except ImportError as error:
        _say(pipe, {"missing": str(error), "extra": scorer.extra})
        return
    _say(pipe, {"ready": {package: metadata.version(package) for package in scorer.packages}})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # Not caught by Python: the kernel ends the process, also in the middle of a C function.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(wall_s) + _GRACE_S)
        _say(pipe, graded(compare, request["answer"], request["gold"]))
        signal.alarm(0)


def _say(pipe: TextIO, message: dict[str, Any]) -> None:
    pipe.write(json.dumps(message) + "\n")
    pipe.flush()


def graded(compare: Compare, answer: str, gold: str) -> dict[str, Any]:
    """Return what the parent is told of one answer."""
    seen = _SwallowedErrors()
    try:
        with seen:
            told = compare(answer, gold)
    except UnreadableGoldError as error:
        return {"failure": Failure.GOLD.value, "detail": str(error)[:_DETAIL_CHARS]}
    except MemoryError:
        return {"failure": Failure.MEMORY.value, "detail": ""}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is its failure, and is told
        return {"failure": Failure.CRASH.value, "detail": f"{type(error).__name__}: {error}"[:_DETAIL_CHARS]}
    # Equal is equal, whatever was tried before. Anything less may only be what an error left of it.
    if told.score == 1.0 or not seen.names:
        return asdict(told)
    failure = Failure.MEMORY if MemoryError.__name__ in seen.names else Failure.CRASH
    return {"failure": failure.value, "detail": seen.names[0]}


class _SwallowedErrors:
    """Notes errors that say nothing of an answer, and that the library takes for "not equal".

    It catches every exception in a dozen places: one that ran out of memory or stack would be scored 0, in
    silence. Only exceptions are traced, not lines, which costs little beside what sympy does.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._before: TraceFunction | None = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        if sys.gettrace() is None:  # there was no memory even to note it
            self.names.append(MemoryError.__name__)
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, _event: str, _value: object) -> Trace:
        frame.f_trace_lines = False
        return self._note

    def _note(self, _frame: FrameType, event: str, value: Any) -> Trace:  # noqa: ANN401 - as sys.settrace has it
        if event == "exception" and issubclass(value[0], _HARD_ERRORS):
            self.names.append(value[0].__name__)
        return self._note


if __name__ == "__main__":
    main()
