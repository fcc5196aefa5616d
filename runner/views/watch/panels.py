"""The panels of engines and errors, as lines. Pure."""

import time
from collections.abc import Iterator

from runner.engine_state import EngineState, NodeState
from runner.engines.reports import ReplicaState
from runner.views.watch.document import Line, paragraphs
from runner.views.watch.figures import (
    count_text,
    duration_text,
    gibibytes_text,
    share_text,
)
from runner.views.watch.index import RunIndex
from runner.views.watch.palette import ALARM, BOLD, CARE, DIM, ERROR_STYLES, HEADING
from runner.views.watch.rows import shown


def engine_lines(index: RunIndex) -> Iterator[Line]:
    """Yield what is known of every engine."""
    engines = index.engines
    if not engines.by_name:
        yield Line("no engine has been heard of yet", DIM)
        return
    if engines.queued is not None:
        yield Line(f"queue: {engines.queued} turns wait for a place, at most {engines.largest_queue or 0}")
        yield Line("")
    if len(engines.by_node) > 1:
        for name, node in sorted(engines.by_node.items()):
            yield from _node(name, node, len(engines.on_node(name)))
        yield Line("")
    for name, engine in engines.by_name.items():
        yield from _engine(name, engine)
        yield Line("")


def _node(name: str, node: NodeState, engines: int) -> Iterator[Line]:
    made = node.produced
    lost = f", an engine lost {node.losses} times" if node.losses else ""
    yield Line(
        f"node {shown(name)}: {engines} engines serve, {made.turns} turns,"
        f" {count_text(made.completion_tokens)} tokens out, {node.actions} commands{lost}",
        CARE if lost or node.is_bereft(engines) else BOLD,
    )


def _engine(name: str, engine: EngineState) -> Iterator[Line]:
    state = "its state is not told" if engine.state is None else engine.state.value
    lost = engine.state in {ReplicaState.LOST, ReplicaState.GIVEN_UP}
    style = ALARM if lost else HEADING
    where = "" if engine.node is None else f" · {shown(engine.node)}"
    yield Line(f"{shown(name)} · {state}{where}", style, anchor=True)
    made = engine.produced
    yield Line(
        f"{made.turns} turns, {count_text(made.prompt_tokens)} tokens in, "
        f"{count_text(made.completion_tokens)} out, {duration_text(made.generate_s)} generating",
        indent=2,
    )
    use, sample = engine.use, engine.sample
    if use is not None:
        rate = f"{use.completion_tokens / use.busy_s:.0f}" if use.busy_s > 0 else "-"
        batch = f"{use.batch_s / use.busy_s:.1f}" if use.busy_s > 0 else "-"
        idle = share_text(1 - use.busy_s / use.serving_s if use.serving_s > 0 else None)
        now_running = "-" if sample is None else str(sample.running)
        yield Line(f"batch now {now_running}, mean {batch} · {rate} tok/s busy · idle {idle}", indent=2)
    stats = None if sample is None else sample.stats
    if stats is not None:
        waiting = "-" if stats.waiting is None else str(stats.waiting)
        used, whole = (
            gibibytes_text(stats.gpu_memory_used_bytes),
            gibibytes_text(stats.gpu_memory_total_bytes),
        )
        yield Line(
            f"waiting {waiting} · KV cache {share_text(stats.kv_cache_usage)} · GPU"
            f" {share_text(stats.gpu_utilization)}, memory {used} of {whole} GiB",
            indent=2,
        )
    if engine.losses:
        yield Line(f"lost {engine.losses} times, came up again {engine.restarts} times", CARE, 2)
    for loss in engine.last_losses:
        back = "given up" if loss.given_up else f"back after {duration_text(loss.back_after_s) or '-'}"
        yield Line(
            f"{clock_text(loss.at)} {back}, {loss.requeued} turns requeued: {shown(loss.cause)}", CARE, 4
        )


def error_lines(index: RunIndex) -> Iterator[Line]:
    """Yield the last errors, the newest first, and how many there were of each kind."""
    if not index.errors:
        yield Line("no errors: no retries, nothing unfinished, no engine lost, no damage", DIM)
        return
    counts = ", ".join(f"{kind.value} {count}" for kind, count in index.error_counts.items())
    yield Line(f"in all: {counts}", BOLD)
    for note in reversed(index.errors):
        when = "" if note.at is None else f"{clock_text(note.at)} "
        yield Line("")
        yield Line(f"{when}{note.kind.value} · {note.where}", ERROR_STYLES[note.kind], anchor=True)
        yield from paragraphs(note.cause, indent=2)


def clock_text(at: float) -> str:
    """Return the local time of day; a dash for a moment that no clock shows."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "-"
