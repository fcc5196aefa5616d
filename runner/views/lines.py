"""Plain lines about a run: one a termination, retry or end, greppable as `key=value`."""

import json
import re
from collections.abc import Callable

from runner.clean import clean_text
from runner.events import Event, InfrastructureRetry, RunEnded, RunStarted, Terminated, Unfinished

_SHOWN_CHARS = 200
_ENDS_VALUE = re.compile(r"[\s\"=]")


class LinesView:
    """Turns events into lines as they come."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """`write` takes one line without its end."""
        self._write = write
        self._planned = 0
        self._ended = 0
        self._correct = 0.0

    def __call__(self, event: Event) -> None:
        """Take one event; most say nothing."""
        line = self._line(event)
        if line is not None:
            self._write(line)

    def _line(self, event: Event) -> str | None:
        if isinstance(event, RunStarted):
            problems = sum(len(dataset.problems) for dataset in event.datasets)
            self._planned = problems * event.samples
            names = _value(",".join(dataset.name for dataset in event.datasets))
            return f"run={_value(event.run_id)} datasets={names} problems={problems} samples={event.samples}"
        if isinstance(event, Terminated):
            self._ended += 1
            self._correct += event.score
            return (
                f"done={self._ended}/{self._planned} trajectory={_value(event.key)} score={event.score:g}"
                f" termination={event.termination.value} turns={len(event.turn_seeds)}"
                f" s={event.elapsed_s:.1f} mean={self._correct / self._ended:.3f}"
            )
        if isinstance(event, InfrastructureRetry):
            return f"retry trajectory={_value(event.key)} attempt={event.attempt} cause={_plain(event.cause)}"
        if isinstance(event, Unfinished):
            key, cause = _value(event.key), _plain(event.cause)
            return f"unfinished trajectory={key} attempts={event.attempt} cause={cause}"
        if isinstance(event, RunEnded):
            note = f" message={_plain(event.message)}" if event.message else ""
            return f"ended={event.reason.value}{note}"
        return None


def _value(text: object) -> str:
    """Return what stands behind a `=`; quoted where an id would otherwise pass for further fields."""
    shown = _plain(text)
    return shown if not _ENDS_VALUE.search(shown) else json.dumps(shown, ensure_ascii=False)


def _plain(text: object) -> str:
    return clean_text(str(text), keep_lines=False, limit_chars=_SHOWN_CHARS)
