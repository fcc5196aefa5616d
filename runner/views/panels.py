"""The parts of a frame: rows of the live state, each panel as wide as it is told and as long as it is.

What a model, a server, a file or a data set wrote reaches a row through `cells.shown` alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.engines.reports import ReplicaState
from runner.protocol.score import Termination
from runner.views import words
from runner.views.cells import Row, RowMaker, Tone
from runner.views.live_parts import ErrorNote, Tally
from runner.views.live_state import LiveState
from runner.views.phases import AT_WORK, Phase, PhaseState

_LABEL = 10
_BAR_WIDTH = 40
_SMALL_BAR_WIDTH = 10
_PHASE_TONES = {Phase.RUNNING: Tone.GOOD, Phase.PAUSED: Tone.BAD}
END_WORDS = {one.value: one.value.replace("_", " ") for one in Termination} | {
    Termination.CONTEXT_LENGTH_EXCEEDED.value: "context length"
}


@dataclass(frozen=True)
class Glyphs:
    """Signs beyond ASCII, for terminals that have them."""

    done: str = "█"
    rest: str = "░"
    right: str = "✓"
    wrong: str = "✗"
    error: str = "!"
    between: str = " · "
    more: str = "…"


ASCII_GLYPHS = Glyphs(done="#", rest=".", right="+", wrong="x", between=", ", more="...")


@dataclass(frozen=True)
class View:
    """Everything a frame shows, at one moment (`now` in seconds since the epoch)."""

    state: LiveState
    phase: PhaseState
    now: float
    title: str
    journal: str
    watch_hint: str
    briefing: Sequence[str] = ()
    """What is to be known of the run before it begins."""
    wide: bool = False
    """Whether names and answers get more room than 80 columns allow."""
    log_errors: Sequence[ErrorNote] = ()
    log_name: str = ""
    glyphs: Glyphs = field(default_factory=Glyphs)


def header(view: View, width: int) -> list[Row]:
    """The run, its phase, its time, and one bar."""
    state, phase = view.state, view.phase
    began_at = view.phase.since if state.started is None else state.started.at
    tone = _PHASE_TONES.get(phase.phase, Tone.BUSY)
    first = RowMaker(width).add("Recount", tone=Tone.TITLE).gap(2)
    first.add(view.title, 40 if view.wide else 30).gap(2).add(phase.phase.value, 10, tone)
    first.add("elapsed ", tone=Tone.FAINT).add(words.duration(int(view.now) - int(began_at)), 8)
    if phase.phase is Phase.RUNNING:
        first.add("left ", tone=Tone.FAINT).add(_about(state.left_s(view.now)))
    return [first.row(), _bar_row(view, width)]


def briefing(view: View, width: int) -> list[Row]:
    """What was said of the run, for as long as nothing of it runs."""
    if view.state.started is not None:
        return []
    return [RowMaker(width).add(line).row() for line in view.briefing]


def _about(seconds: float | None) -> str:
    if seconds is None:
        return words.NOT_KNOWN
    return f"~{words.duration(seconds)}" if seconds > 0 else "done"


def _bar_row(view: View, width: int) -> Row:
    state, phase = view.state, view.phase
    maker = RowMaker(width)
    if phase.phase in AT_WORK and state.planned:
        share = state.tried / state.planned
        _bar(maker, view.glyphs, share, _BAR_WIDTH)
        maker.gap(2).add(words.percent(share)).gap(2)
        maker.add(f"{state.tried} of {state.planned} trajectories").gap(2)
        if state.unfinished:
            maker.add(f"{state.unfinished} unfinished", tone=Tone.BAD).gap(2)
        return maker.add(phase.detail, tone=Tone.FAINT).row()
    if phase.share is not None and phase.done is not None and phase.total is not None:
        _bar(maker, view.glyphs, phase.share, _BAR_WIDTH)
        done = words.amount(phase.done, of_bytes=phase.in_bytes)
        total = words.amount(phase.total, of_bytes=phase.in_bytes)
        maker.gap(2).add(words.percent(phase.share)).gap(2).add(f"{done} of {total}").gap(2)
    return maker.add(phase.detail, tone=Tone.FAINT).row()


def _bar(maker: RowMaker, glyphs: Glyphs, share: float, width: int) -> None:
    done = min(int(share * width), width)
    maker.add(glyphs.done * done, tone=Tone.GOOD)
    maker.add(glyphs.rest * (width - done), tone=Tone.FAINT)


def datasets(view: View, width: int, most: int) -> list[Row]:
    """A row a data set: how far, the mean so far with its interval, the rate, the time left."""
    name_width = 24 if view.wide else 16
    head = RowMaker(width).add("data set", name_width, Tone.TITLE).gap(1)
    head.add_right("done", 9, Tone.TITLE).gap(2 + _SMALL_BAR_WIDTH + 2)
    head.add_right("mean", 5, Tone.TITLE).gap(2).add("95 %", 13, Tone.TITLE).add_right("rate", 9, Tone.TITLE)
    head.gap(1).add_right("left", 8, Tone.TITLE)
    rows = [_dataset(one, view, width, name_width) for one in view.state.tallies.values()]
    return [head.row(), *first_rows(rows, most, view.glyphs, width)]


def _dataset(tally: Tally, view: View, width: int, name_width: int) -> Row:
    begun_at = view.now if view.state.started is None else view.state.started.at
    maker = RowMaker(width).add(tally.name, name_width).gap(1)
    maker.add_right(f"{tally.tried}/{tally.planned}", 9).gap(2)
    _bar(maker, view.glyphs, tally.tried / tally.planned if tally.planned else 0.0, _SMALL_BAR_WIDTH)
    maker.gap(2)
    interval = tally.mean.interval()
    if interval is None:
        maker.add_right(words.NOT_KNOWN, 5, Tone.FAINT).gap(2 + 13)
    else:
        maker.add_right(f"{tally.mean.value:.3f}", 5, Tone.TITLE).gap(2)
        maker.add(words.interval(interval), 13, Tone.FAINT)
    maker.add_right(words.rate_a_minute(tally.per_s(view.now, begun_at)), 9).gap(1)
    return maker.add_right(_about(tally.left_s(view.now, begun_at)), 8).row()


def figures(view: View, width: int) -> list[Row]:
    """How trajectories ended, engines and the sandbox as a whole: a line each."""
    return [_ends(view, width), _engine_totals(view, width), _sandbox(view, width)]


def _label(text: str, width: int) -> RowMaker:
    return RowMaker(width).add(text, _LABEL, Tone.FAINT)


def add_parts(maker: RowMaker, parts: Sequence[tuple[str, Tone]], between: str) -> RowMaker:
    for index, (text, tone) in enumerate(parts):
        if index:
            maker.add(between, tone=Tone.FAINT)
        maker.add(text, tone=tone)
    return maker


def _ends(view: View, width: int) -> Row:
    state = view.state
    parts = [
        (f"{END_WORDS[one.value]} {state.terminations[one.value]}", _END_TONES[one])
        for one in Termination
        if state.terminations[one.value]
    ]
    if state.unfinished:
        parts.append((f"unfinished {state.unfinished}", Tone.BAD))
    maker = _label("ended", width)
    return add_parts(maker, parts or [("none yet", Tone.FAINT)], view.glyphs.between).row()


_END_TONES = {
    Termination.FINAL_ANSWER: Tone.PLAIN,
    Termination.MAX_TURNS: Tone.WARN,
    Termination.CONTEXT_LENGTH_EXCEEDED: Tone.WARN,
    Termination.REQUEST_ERROR: Tone.WARN,
}


def _engine_totals(view: View, width: int) -> Row:
    state = view.state
    maker, engines = _label("engines", width), list(state.engines.by_name.values())
    if not engines:
        return maker.add("none heard of yet", tone=Tone.FAINT).row()
    states = Counter(one.state for one in engines if one.state is not None)
    parts = [(f"{number} {one.value.replace('_', ' ')}", STATE_TONES[one]) for one, number in states.items()]
    if not parts:
        parts = [(f"{len(engines)}", Tone.PLAIN)]
    rates = [rate for one in engines if (rate := tokens_per_s(view, one.name)) is not None]
    produced = sum(one.produced.completion_tokens for one in engines)
    parts.append((f"{words.count(sum(rates))} tokens/s", Tone.PLAIN))
    parts.append((f"{words.count(produced)} tokens written", Tone.PLAIN))
    if state.engines.queued is not None:
        parts.append((f"queue {state.engines.queued}", Tone.PLAIN))
    return add_parts(maker, parts, view.glyphs.between).row()


def tokens_per_s(view: View, name: str) -> float | None:
    rate, started = view.state.token_rates.get(name), view.state.started
    return None if rate is None else rate.per_s(view.now, 0.0 if started is None else started.at)


STATE_TONES = {
    ReplicaState.WAITING: Tone.WARN,
    ReplicaState.STARTING: Tone.BUSY,
    ReplicaState.SERVING: Tone.GOOD,
    ReplicaState.LOST: Tone.BAD,
    ReplicaState.GIVEN_UP: Tone.BAD,
}


def _sandbox(view: View, width: int) -> Row:
    state = view.state
    parts = [(f"{words.count(state.actions)} actions", Tone.PLAIN)]
    if state.actions:
        parts += [
            (f"{name} {words.latency(state.latency_s(quantile))}", Tone.PLAIN)
            for name, quantile in (("p50", 0.5), ("p90", 0.9))
        ]
    if state.limits:
        parts.append((f"limits hit: {words.counts(state.limits, ', ')}", Tone.WARN))
    parts.append((f"retries {state.retries}", Tone.BAD if state.retries else Tone.PLAIN))
    if state.actions:
        parts.append((f"{words.percent(state.failed_actions / state.actions)} exit not 0", Tone.FAINT))
    return add_parts(_label("sandbox", width), parts, view.glyphs.between).row()


def hints(view: View, width: int) -> list[Row]:
    """Where everything is kept, and how to look closer."""
    return [
        _label(name, width).add(value, tone=Tone.FAINT).row()
        for name, value in (("watch", view.watch_hint), ("journal", view.journal))
    ]


def first_rows(rows: list[Row], most: int, glyphs: Glyphs, width: int) -> list[Row]:
    if len(rows) <= most:
        return rows
    kept = max(most - 1, 0)
    return [
        *rows[:kept],
        RowMaker(width).add(f"{glyphs.more} {len(rows) - kept} more", tone=Tone.FAINT).row(),
    ]
