"""The single lines around the table: the run, its data sets, damage, panels, the filter. Pure."""

from pathlib import Path

from rich.text import Text

from runner.clean import clean_text
from runner.events import EndReason
from runner.views.watch.figures import duration_text, mean_text
from runner.views.watch.index import ErrorClass, RunIndex
from runner.views.watch.order import Filter, Order
from runner.views.watch.palette import ALARM, BOLD, CARE, DIM, OUTCOME_STYLES
from runner.views.watch.rows import SCORED, Outcome, shown
from runner.views.watch.tail import JournalPresence, Look

TABLE, ENGINES, ERRORS = "trajectories", "engines", "errors"
SILENT_S = 60.0
"""Without an event for so long, the top says so: nothing else tells a killed run from a slow one."""
_SHOWN_DATASETS = 4
_NAME_CELLS = 14


def run_line(index: RunIndex, now: float, state_of_reading: str) -> Text:
    """Return which run this is, how far it is, and whether it lives."""
    text = Text(no_wrap=True, overflow="ellipsis")
    started = index.started
    if started is None:
        return text.append("recount ", BOLD).append(state_of_reading)
    text.append("recount ", BOLD).append(shown(started.run_id), BOLD)
    ended = index.ended
    if ended is not None:
        style = "green" if ended.reason is EndReason.COMPLETE else ALARM
        text.append(" · ").append(ended.reason.value, style)
    elif index.pause is not None:
        text.append(" · ").append(f"paused: the {index.pause.fault.value} fails", ALARM)
    else:
        text.append(" · ").append("running", OUTCOME_STYLES[Outcome.RUNNING])
    if state_of_reading:
        text.append(f" · {state_of_reading}", CARE)
    last_at = index.last_event_at or started.at
    wall_s = (last_at if ended is not None else now) - started.at
    text.append(f" · {duration_text(max(wall_s, 0.0))}")
    done = sum(tally[outcome] for tally in index.tallies.values() for outcome in SCORED)
    work_s = last_at - started.at
    if done and work_s > 0:
        text.append(f" · {done / work_s * 60:.1f}/min")
        text.append(f" · {index.generated_tokens / work_s:.0f} tok/s")
    silent_s = now - last_at
    if ended is None and silent_s > SILENT_S:
        text.append(f" · silent for {duration_text(silent_s)}", CARE)
    return text


def dataset_lines(index: RunIndex) -> list[Text]:
    """Return a line a data set: how many are done, the mean so far, outcomes."""
    lines: list[Text] = []
    names = list(index.tallies)
    for name in names[:_SHOWN_DATASETS]:
        tally = index.tallies[name]
        scored = sum(tally[outcome] for outcome in SCORED)
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{shown(name)[:_NAME_CELLS]:<{_NAME_CELLS}} ", BOLD)
        text.append(f"{scored}/{sum(tally.values())}  ")
        text.append(f"mean {mean_text(index.mean(name))}  ")
        for outcome in Outcome:
            if tally[outcome]:
                text.append(f" {outcome.value} {tally[outcome]}", OUTCOME_STYLES[outcome])
        lines.append(text)
    if len(names) > _SHOWN_DATASETS:
        lines.append(Text(f"and {len(names) - _SHOWN_DATASETS} more data sets", DIM))
    return lines


def damage_line(index: RunIndex) -> Text | None:
    """Return the newest damage in one line, or None."""
    for note in reversed(index.errors):
        if note.kind is ErrorClass.DAMAGE:
            cause = clean_text(note.cause, keep_lines=False)
            return Text(
                f"{note.where}: {cause} (3: all errors)", style=ALARM, no_wrap=True, overflow="ellipsis"
            )
    return None


def reading_text(look: Look, index: RunIndex, journal: Path) -> str:
    """Return what there is to say about reading the journal; mostly nothing."""
    if look.presence is JournalPresence.ABSENT:
        waited_for = f"{shown(str(journal))} is waited for"
        return waited_for if index.started is None else "the journal is gone"
    if look.presence is JournalPresence.UNREADABLE:
        return f"the journal cannot be read: {shown(look.problem)}"
    if look.more and look.size_bytes:
        return f"reading {look.read_bytes / look.size_bytes:.0%}"
    if look.torn_bytes and index.ended is None:
        return f"a line is being written ({look.torn_bytes} bytes)"
    return "" if index.started is not None else "waiting for the run to start"


def tabs_line(index: RunIndex, current: str | None) -> Text:
    """Return the panels' names with what is in each, the open one marked."""
    counts = {
        TABLE: len(index.rows),
        ENGINES: len(index.engines.by_name),
        ERRORS: sum(index.error_counts.values()),
    }
    text = Text()
    for number, (name, count) in enumerate(counts.items(), start=1):
        style = "bold reverse" if name == current else DIM
        if name == ERRORS and count and name != current:
            style = ALARM
        text.append(f" {number} {name} {count} ", style).append(" ")
    return text


def filter_line(chosen: Filter, order: Order, *, shown_rows: int, rows: int) -> Text | None:
    """Return what is filtered and how rows are sorted; None where both are as they begin."""
    text = Text()
    if not chosen.lets_all_pass:
        text.append("only ", BOLD)
        for name, value in (
            ("data set", chosen.dataset),
            ("state", chosen.outcome and chosen.outcome.value),
            ("termination", chosen.termination and chosen.termination.value),
            ("text", chosen.search and chosen.search.text),
        ):
            if value:
                text.append(f"{name}={shown(value)} ", CARE)
        text.append(f": {shown_rows} of {rows}  ")
        if chosen.search is not None and not chosen.search.searched_journal:
            text.append("searching commands ...  ", DIM)
    if order != Order():
        text.append(f"sorted by {order.column.value}, {'down' if order.descending else 'up'}", DIM)
    return text or None
