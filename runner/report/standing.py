"""What a reader has to know before any figure: how the run ended, what is missing, what failed. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from runner.clean import clean_text
from runner.events import EndReason
from runner.report.figures import span
from runner.state import RunState


class Weight(str, Enum):
    """How much a notice changes what the figures mean."""

    GRAVE = "grave"
    NOTE = "note"


@dataclass(frozen=True)
class Notice:
    """A sentence, and more of the same kind below it."""

    weight: Weight
    text: str
    details: tuple[str, ...] = ()


_MOST_DETAILS = 8
_DETAIL_CHARS = 300


def notices(state: RunState, results: Mapping[str, Any]) -> list[Notice]:
    """Return all notices of a run, the grave ones first."""
    found = [*_end(state), *_missing(results), *_forbidden(results), *_our_side(state, results)]
    if results["notes"]:
        found.append(Notice(Weight.NOTE, "To be known besides:", tuple(results["notes"])))
    if results["concurrency"]["notes"]:
        found.append(Notice(Weight.NOTE, "Of the host:", tuple(results["concurrency"]["notes"])))
    return sorted(found, key=lambda one: one.weight is not Weight.GRAVE)


def _end(state: RunState) -> Iterator[Notice]:
    message = "" if state.ended is None else state.ended.message
    said = (message,) if message else ()
    reason = state.end_reason
    if reason is None:
        yield Notice(
            Weight.GRAVE,
            "The journal has no end: the run was killed, or is still at work. This is how far it came.",
        )
    elif reason is EndReason.INTERRUPTED:
        yield Notice(Weight.GRAVE, "The run was stopped before all of its trajectories had ended.", said)
    elif reason is EndReason.FAILED:
        yield Notice(Weight.GRAVE, "The run failed: on our own side, whatever the model was worth.", said)


def _missing(results: Mapping[str, Any]) -> Iterator[Notice]:
    lacking = {
        name: one["mean"]["planned"] - one["mean"]["scored"]
        for name, one in results["datasets"].items()
        if one["mean"]["planned"] > one["mean"]["scored"]
    }
    if not lacking:
        return
    planned = sum(one["mean"]["planned"] for one in results["datasets"].values())
    details = [
        f"{name}: {lacking[name]} without a score ({results['datasets'][name]['not_started']} never started);"
        f" the mean over all lies between {results['datasets'][name]['mean']['if_missing_wrong']:.4f}"
        f" and {results['datasets'][name]['mean']['if_missing_right']:.4f}"
        for name in lacking
    ]
    causes = [
        f"{one['task_id']} sample {one['sample_index']}: {one['cause']}"
        for dataset in results["datasets"].values()
        for one in dataset["unfinished"]
    ]
    yield Notice(
        Weight.GRAVE,
        f"{sum(lacking.values())} of {planned} trajectories have no score. They are not counted as wrong,"
        " nor left out of the verdict.",
        (*details, *_some(causes)),
    )


def _forbidden(results: Mapping[str, Any]) -> Iterator[Notice]:
    if results["deviations"]:
        yield Notice(Weight.GRAVE, "Not to be called a reproduction, because:", tuple(results["deviations"]))


def _our_side(state: RunState, results: Mapping[str, Any]) -> Iterator[Notice]:
    retries = [
        f"{key}: {retry.cause}" for key, one in sorted(state.trajectories.items()) for retry in one.retries
    ]
    if retries:
        yield Notice(
            Weight.NOTE,
            f"Our own side failed {_times(len(retries))}, and a trajectory started again from its beginning.",
            _some(retries),
        )
    if state.disk_full_s > 0:
        yield Notice(Weight.NOTE, f"The disk was full, and no turn began, for {span(state.disk_full_s)}.")
    if state.pauses:
        yield Notice(
            Weight.NOTE,
            f"Our own side failed so often in a row that nothing began: {_times(state.pauses)},"
            f" {span(state.faulty_s)} in all.",
        )
    if state.stalls:
        yield Notice(
            Weight.NOTE,
            f"Nothing moved for long, {_times(state.stalls)}; the files stall-*.txt say what was waited for.",
        )
    losses = results["engines"]["run"]["losses"]
    if losses:
        yield Notice(
            Weight.NOTE,
            f"Engines were lost {_times(losses)}; what they were at was generated elsewhere, or again.",
        )
    if len(state.parts) > 1:
        yield Notice(
            Weight.NOTE,
            f"The run went on {_times(len(state.parts) - 1)} after it had stopped; the {span(state.paused_s)}"
            " between are in no time on this page.",
            tuple(_some(_of_resumptions(state))),
        )


def _of_resumptions(state: RunState) -> list[str]:
    found = []
    for part in state.parts[1:]:
        resumed = getattr(part.began, "resumed", None)
        if resumed is not None:
            found += [f"part {resumed.part}: {difference}" for difference in resumed.differs]
    return found


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _some(items: list[str]) -> tuple[str, ...]:
    shown = [clean_text(item, keep_lines=False, limit_chars=_DETAIL_CHARS) for item in items[:_MOST_DETAILS]]
    more = len(items) - len(shown)
    return (*shown, f"and {more} more") if more else tuple(shown)
