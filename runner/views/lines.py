"""Plain lines about a run, for logs and those who grep them: `key=value`, short enough for a prefix.

One a termination, retry, end, or loss of an engine; one when the phase changes; a few every half minute.
"""

import json
import re
from collections.abc import Callable

from runner.clean import clean_text
from runner.engines.reports import ReplicaState
from runner.events import (
    EngineDown,
    EngineUp,
    Event,
    InfrastructureRetry,
    RunEnded,
    RunResumed,
    RunStarted,
    Terminated,
    TrajectoryStarted,
    Unfinished,
)
from runner.views.live_parts import Tally
from runner.views.live_state import LiveState
from runner.views.phases import PhaseState

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
        self._at_work = False

    def __call__(self, event: Event) -> None:
        """Take one event; most say nothing."""
        line = self._line(event)
        if line is not None:
            self._write(line)

    def catch_up(self, event: Event) -> None:
        """Count an event of an earlier part of the run, and say nothing."""
        self._line(event)

    def _line(self, event: Event) -> str | None:
        if isinstance(event, EngineUp | EngineDown):
            return self._engine_line(event)
        if isinstance(event, TrajectoryStarted):
            self._at_work = True
            return None
        return self._run_line(event)

    def _engine_line(self, event: EngineUp | EngineDown) -> str | None:
        engine = f"engine={_value(event.name)}"
        if isinstance(event, EngineDown):
            state = ReplicaState.GIVEN_UP if event.given_up else ReplicaState.LOST
            return f"{engine} state={state.value} requeued={event.requeued} cause={_plain(event.cause)}"
        if event.starts == 1 and not self._at_work:
            return None  # all do, before a run begins
        node = "" if event.node is None else f" node={_value(event.node)}"
        serves = f"state={ReplicaState.SERVING.value} starts={event.starts} s={event.start_s:.1f}"
        return f"{engine} {serves}{node}"

    def _run_line(self, event: Event) -> str | None:
        if isinstance(event, RunStarted):
            problems = sum(len(dataset.problems) for dataset in event.datasets)
            self._planned = problems * event.samples
            names = _value(",".join(dataset.name for dataset in event.datasets))
            line = f"run={_value(event.run_id)} datasets={names} problems={problems} samples={event.samples}"
            if isinstance(event, RunResumed):
                line += f" part={event.resumed.part} missing={event.resumed.missing}"
            return line
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


def phase_line(state: PhaseState) -> str:
    """Return the line of a phase that begins, or of a further step of it."""
    detail = f" detail={_value(state.detail)}" if state.detail else ""
    return f"phase={state.phase.value}{detail}"


def log_line(text: str) -> str:
    """Return the line of an error that a library or a child process wrote."""
    return f"log error={_plain(text)}"


def note_line(text: str) -> str:
    """Return the line of something a person should know."""
    return f"note={_value(text)}"


def progress_lines(state: LiveState, phase: PhaseState, now: float) -> list[str]:
    """Return how far the run is: a line a data set, then one of what it is made with."""
    if state.started is None or state.ended is not None:
        share = "" if phase.share is None else f" percent={100 * phase.share:.0f}"
        return [f"progress phase={phase.phase.value} s={now - phase.since:.0f}{share}"]
    begun_at = state.started.at
    return [
        *(_dataset_line(one, now, begun_at) for one in state.tallies.values()),
        _work_line(state, now, begun_at),
    ]


def _dataset_line(tally: Tally, now: float, begun_at: float) -> str:
    fields = [f"progress dataset={_value(tally.name)} done={tally.tried}/{tally.planned}"]
    interval = tally.mean.interval()
    if interval is not None:
        fields.append(f"mean={tally.mean.value:.3f} low={interval.low:.3f} high={interval.high:.3f}")
        fields += ["interval=hint"] if interval.is_hint else []
    per_s, left_s = tally.per_s(now, begun_at), tally.left_s(now, begun_at)
    fields += [] if per_s is None else [f"per_min={60 * per_s:.2f}"]
    fields += [] if left_s is None else [f"left_s={left_s:.0f}"]
    fields += [f"unfinished={len(tally.unfinished)}"] if tally.unfinished else []
    return " ".join(fields)


def _work_line(state: LiveState, now: float, begun_at: float) -> str:
    rates = [one.per_s(now, begun_at) or 0.0 for one in state.token_rates.values()]
    fields = [f"progress s={now - begun_at:.0f} running={len(state.running)} tokens_s={sum(rates):.0f}"]
    fields += [] if state.engines.queued is None else [f"queued={state.engines.queued}"]
    nodes = [name for name in state.engines.by_node if state.engines.on_node(name)]
    fields += [f"nodes={len(nodes)}"] if state.engines.by_node else []
    fields.append(f"actions={state.actions}")
    if state.actions:
        fields.append(f"p50_s={state.latency_s(0.5):.3f} p90_s={state.latency_s(0.9):.3f}")
    if state.limits:
        fields.append(
            f"limits={','.join(f'{name}:{number}' for name, number in sorted(state.limits.items()))}"
        )
    return " ".join([*fields, f"retries={state.retries}"])


def _value(text: object) -> str:
    """Return what stands behind a `=`; quoted where an id would otherwise pass for further fields."""
    shown = _plain(text)
    return shown if not _ENDS_VALUE.search(shown) else json.dumps(shown, ensure_ascii=False)


def _plain(text: object) -> str:
    return clean_text(str(text), keep_lines=False, limit_chars=_SHOWN_CHARS)
