"""The tables of a frame: engines, what ended, what went wrong, what runs."""

import re
from collections import Counter

from runner.engine_state import EngineState, NodeState
from runner.engines.reports import ReplicaState
from runner.protocol.score import Termination
from runner.views import words
from runner.views.cells import Row, RowMaker, Tone, shown
from runner.views.live_parts import Ended, ErrorClass, ErrorNote, Running, RunningPhase
from runner.views.panels import END_WORDS, STATE_TONES, View, add_parts, first_rows, tokens_per_s

_MODULE = re.compile(r"^(?:\w{1,60}\.){1,9}(?=\w{1,80}:)")
"""Before an error's class: where it is defined says less than what it says."""


def engine_table(view: View, width: int, most: int) -> list[Row]:
    """A row an engine, where engines tell of themselves."""
    engines = [one for one in view.state.engines.by_name.values() if one.state is not None]
    if not engines or most < 2:
        return []
    head = RowMaker(width).add("engine", 16, Tone.TITLE).add("state", 10, Tone.TITLE)
    for name, room in (("batch", 6), ("tokens/s", 9), ("cache", 7), ("GPU GiB", 13), ("load", 7)):
        head.add_right(name, room, Tone.TITLE)
    rows = [_engine(one, view, width) for one in engines]
    head.gap(2).add("restarts", tone=Tone.TITLE)
    return [head.row(), *first_rows(rows, most - 1, view.glyphs, width)]


def node_table(view: View, width: int, most: int) -> list[Row]:
    """A row a node, where there are several: its engines, what they do, how often one was lost."""
    nodes = view.state.engines.by_node
    if len(nodes) < 2 or most < 2:
        return []
    head = RowMaker(width).add("node", 20, Tone.TITLE)
    for name, room in (
        ("engines", 8),
        ("batch", 7),
        ("tokens/s", 10),
        ("turns", 8),
        ("written", 9),
        ("actions", 8),
    ):
        head.add_right(name, room, Tone.TITLE)
    head.gap(2).add("losses", tone=Tone.TITLE)
    rows = [_node(name, one, view, width) for name, one in sorted(nodes.items())]
    return [head.row(), *first_rows(rows, most - 1, view.glyphs, width)]


def _node(name: str, node: NodeState, view: View, width: int) -> Row:
    engines = view.state.engines.on_node(name)
    running = [one.sample.running for one in engines if one.sample is not None]
    rates = [rate for one in engines if (rate := tokens_per_s(view, one.name)) is not None]
    maker = RowMaker(width).add(name, 19).gap(1)
    maker.add_right(len(engines), 8, Tone.BAD if node.is_bereft(len(engines)) else Tone.PLAIN)
    maker.add_right(sum(running) if running else words.NOT_KNOWN, 7)
    maker.add_right(words.count(sum(rates) if engines else None), 10)
    maker.add_right(words.count(node.produced.turns), 8)
    maker.add_right(words.count(node.produced.completion_tokens), 9)
    maker.add_right(words.count(node.actions), 8).gap(2)
    return maker.add(node.losses, tone=Tone.BAD if node.losses else Tone.FAINT).row()


def _engine(engine: EngineState, view: View, width: int) -> Row:
    record = engine.sample
    stats = None if record is None else record.stats
    state = engine.state or ReplicaState.STARTING
    maker = RowMaker(width).add(engine.name, 15).gap(1)
    maker.add(state.value.replace("_", " "), 10, STATE_TONES[state])
    maker.add_right(words.NOT_KNOWN if record is None else record.running, 6)
    maker.add_right(words.count(tokens_per_s(view, engine.name)), 9)
    maker.add_right(words.percent(None if stats is None else stats.kv_cache_usage), 7)
    used = words.gibibytes(None if stats is None else stats.gpu_memory_used_bytes)
    total = words.gibibytes(engine.gpu_memory_total_bytes)
    maker.add_right(used if used == words.NOT_KNOWN else f"{used}/{total}", 13)
    maker.add_right(words.percent(None if stats is None else stats.gpu_utilization), 7).gap(2)
    return maker.add(engine.restarts, tone=Tone.BAD if engine.restarts else Tone.FAINT).row()


def ended_table(view: View, width: int, most: int) -> list[Row]:
    """The last trajectories that ended, the newest first."""
    last = list(view.state.last_ended)[::-1][: max(most - 1, 0)]
    if not last:
        return []
    name = _name_width(view)
    head = RowMaker(width).add("last ended", name + 2, Tone.TITLE).gap(1).add_right("turns", 5, Tone.TITLE)
    head.add_right("time", 8, Tone.TITLE).gap(2).add("score", 7, Tone.TITLE)
    head.add("gold", _answer_width(view), Tone.TITLE).gap(1).add("prediction", tone=Tone.TITLE)
    return [head.row(), *(_ended(one, view, width) for one in last)]


def _ended(one: Ended, view: View, width: int) -> Row:
    right = one.score >= 1.0
    tone = Tone.GOOD if right else Tone.BAD
    maker = RowMaker(width).add(view.glyphs.right if right else view.glyphs.wrong, 2, tone)
    _name(maker, one, view).add_right(one.turns, 5).add_right(words.duration(one.elapsed_s), 8).gap(2)
    maker.add(f"{one.score:.2f}", 7, tone).add(one.gold, _answer_width(view)).gap(1)
    if one.termination == Termination.FINAL_ANSWER.value:
        return maker.add(one.prediction).row()
    return maker.add(END_WORDS.get(one.termination, one.termination), tone=Tone.WARN).row()


def error_table(view: View, width: int, most: int) -> list[Row]:
    """The last errors with their class, the newest first; no rows if there are none. `most` has the head."""
    notes = sorted((*view.state.last_errors, *view.log_errors), key=lambda note: -note.at)[: max(most - 1, 0)]
    if not notes:
        return []
    head = RowMaker(width).add("last errors", 13, Tone.TITLE)
    if view.log_name:
        head.add(f"more in {view.log_name}", tone=Tone.FAINT)
    return [head.row(), *(_error(note, view, width) for note in notes)]


def _error(note: ErrorNote, view: View, width: int) -> Row:
    mild = note.kind in {ErrorClass.LOG, ErrorClass.NOTE, ErrorClass.RETRY, ErrorClass.REQUEST}
    tone = Tone.WARN if mild else Tone.BAD
    maker = RowMaker(width).add(view.glyphs.error, 2, tone).add(note.kind.value, 11, tone)
    maker.add_right(words.duration(view.now - note.at), 7).add(" ago", 6, Tone.FAINT)
    if note.where:
        maker.add(note.where, min(24, max(width // 4, 1))).gap(1)
    return maker.add(_MODULE.sub("", note.cause)).row()


def running_table(view: View, width: int, most: int | None) -> list[Row]:
    """What runs: a row each, at its place as long as it does. `most` counts the head; None is no limit."""
    running = view.state.running
    if not running or (most is not None and most < 2):
        return []
    phases = Counter(one.phase for one in running)
    name = _name_width(view) + 2
    head = RowMaker(width).add(f"running {len(running)}", name, Tone.TITLE).gap(1)
    head.add_right("turn", 6, Tone.TITLE).add_right("context", 9, Tone.TITLE).gap(2)
    head.add("at", 8, Tone.TITLE).add_right("time", 8, Tone.TITLE).gap(2)
    head.add("command", tone=Tone.TITLE).gap(2)
    parts = [(f"{phases[one]} {one.value}", Tone.FAINT) for one in RunningPhase if phases[one]]
    add_parts(head, parts, view.glyphs.between)
    rows = [_running(one, view, width) for one in running[: len(running) if most is None else most]]
    if most is None or len(running) <= most - 1:
        return [head.row(), *rows]
    hidden = len(running) - (most - 2)
    more = RowMaker(width, indent=2).add(f"{view.glyphs.more} {hidden} more", tone=Tone.FAINT).row()
    return [head.row(), *rows[: most - 2], more]


_PHASE_TONES = {
    RunningPhase.MODEL: Tone.PLAIN,
    RunningPhase.COMMAND: Tone.BUSY,
    RunningPhase.RETRY: Tone.WARN,
}


def _running(one: Running, view: View, width: int) -> Row:
    most = view.state.max_turns
    number = one.turns if most is not None and one.turns >= most else one.turns + 1
    maker = _name(RowMaker(width, indent=2), one, view)
    maker.add_right(f"{number}/{words.NOT_KNOWN if most is None else most}", 6)
    maker.add_right(words.count(one.context_tokens or None), 9).gap(2)
    maker.add(one.phase.value, 8, _PHASE_TONES[one.phase])
    maker.add_right(words.duration(int(view.now) - int(one.started_at)), 8).gap(2)
    busy = one.phase is RunningPhase.COMMAND
    return maker.add(one.command, tone=Tone.PLAIN if busy else Tone.FAINT).row()


def _name(maker: RowMaker, one: Running | Ended, view: View) -> RowMaker:
    """Add a trajectory's name; of a long one the sample is not what is cut off."""
    sample, width = f":{one.key.sample}", _name_width(view)
    name = shown(f"{one.key.dataset}/{one.key.problem_id}", width - len(sample))
    return maker.add(name + sample, width).gap(1)


def _name_width(view: View) -> int:
    return 40 if view.wide else 24


def _answer_width(view: View) -> int:
    return 20 if view.wide else 14
