"""How engines were used over time: the state of a run keeps sums alone, so it is read from the journal."""

import json
from pathlib import Path

from runner.events import EVENT_ADAPTER, EngineSample, RunResumed
from runner.journal import read_lines

_MAY_BE_ONE = (b'"engine_sample"', b'"run_resumed"')


def read_samples(path: Path) -> list[EngineSample | RunResumed]:
    """Return the samples of a journal that was read before, and where the run went on, in order."""
    found: list[EngineSample | RunResumed] = []
    for _, raw in read_lines(path):
        # Most lines are turns, and long: those are not worth reading a second time.
        if any(mark in raw for mark in _MAY_BE_ONE):
            event = EVENT_ADAPTER.validate_python(json.loads(raw))
            if isinstance(event, EngineSample | RunResumed):
                found.append(event)
    return found
