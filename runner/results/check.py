"""A run's files held against its journal: all derived once more, every difference named by its place."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner import __version__
from runner.chain import chain_of, follows
from runner.errors import RecountError, UserError
from runner.events import CODE
from runner.hashing import code_sha256
from runner.journal import JOURNAL_NAME, JournalError, JournalFacts, is_being_written, read_lines, read_run
from runner.rescore.files import SCORES_DIR, read_scores
from runner.rescore.registry import Scorer
from runner.rescore.run import exact_rows
from runner.results.build import build_results
from runner.results.files import RESULTS_NAME, SUMMARY_NAME, results_text
from runner.results.inputs import check_inputs
from runner.results.recheck import recheck_trajectories
from runner.results.summary import summary_text
from runner.results.traces import TRACE_DIR, render_trace, trace_name
from runner.state import RunState

MOST_NAMED = 500
"""Differences of one file that are named, more than one change makes; further ones are counted."""
_SHOWN_CHARS = 80
_ABSENT = object()


@dataclass(frozen=True)
class RunReport:
    """What was checked and what does not hold: pairs of a place and what is wrong there."""

    checked: list[tuple[str, str]] = field(default_factory=list)
    differences: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def take(self, what: str, said: str, differences: Iterator[tuple[str, str]]) -> None:
        """Note one check: what it found wrong, or what may be said where it found nothing."""
        found = list(differences)
        self.differences.extend(found[:MOST_NAMED])
        if len(found) > MOST_NAMED:
            self.differences.append((what, f"{len(found) - MOST_NAMED} more differences"))
        if not found:
            self.checked.append((what, said))


def check_run(run_dir: Path, *, whole: bool = True, report: RunReport | None = None) -> RunReport:
    """Derive everything of a run from its journal and compare; nothing is changed.

    `whole` expects what a run's own directory has: traces, and inputs where the profile names them. A bundle
    has neither. Raises `JournalError` where there is no journal to check.
    """
    report = report or RunReport()
    path = run_dir / JOURNAL_NAME
    if is_being_written(path):
        report.notes.append("the run is at work: its files are derived when it ends")
    report.take(JOURNAL_NAME, "every line is the one that was written", _check_chain(path, report))
    try:
        state, journal = read_run(path)
        results = build_results(state, journal)
    except (JournalError, ValueError, KeyError) as error:
        # Damaged: named by file and line. Nothing can be derived from it.
        report.differences.append(
            (JOURNAL_NAME, str(error.message if isinstance(error, RecountError) else error))
        )
        return report
    _note_versions(state, journal, report)
    report.take("trajectories", _count(len(state.trajectories), "agrees", "agree"), _trajectories(state))
    report.take(RESULTS_NAME, "as the journal gives it", _check_results(run_dir, results))
    summary = summary_text(results)
    report.take(SUMMARY_NAME, "as the journal gives it", _check_text(run_dir, SUMMARY_NAME, summary))
    if whole:
        if (run_dir / SCORES_DIR).is_dir():
            held = "each is of the answers of the journal"
            report.take(SCORES_DIR, held, _check_scores(run_dir, state, journal, report))
        said = _count(len(state.trajectories), "is", "are") + " as the journal gives them"
        report.take(TRACE_DIR, said, _check_traces(run_dir, state))
        check_inputs(state, report.checked, report.differences, report.notes)
    return report


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _note_versions(state: RunState, journal: JournalFacts, report: RunReport) -> None:
    if not journal.chain:
        report.notes.append("the journal carries no chain: a changed line shows only by what derives from it")
    provenance = None if state.started is None else state.started.provenance
    code = None if provenance is None else provenance.versions.get(CODE)
    if state.started is not None and state.started.recount != __version__:
        report.notes.append(
            f"the run is of Recount {state.started.recount}, this is {__version__}:"
            " what a version derives otherwise differs too"
        )
    elif code is not None and code != (ours := code_sha256()):
        report.notes.append(
            f"the run is of other code of Recount {__version__} ({code[:12]}, this is {ours[:12]}):"
            " what it derives otherwise differs too"
        )
    if state.ended is None:
        report.notes.append(
            "the journal has no end: the run was killed, or its last lines are gone;"
            " recount eval --resume RUN ends it and writes what is missing"
        )


def _check_chain(path: Path, report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield every line that is not the one that was written; lines without a hash come from earlier
    versions, and only before all others."""
    before, bare = "", 0
    for number, raw in read_lines(path):
        chain = chain_of(raw)
        if not chain and not before:
            bare = number
        elif not chain:
            yield f"{JOURNAL_NAME}:{number}", "the line carries no hash, those before it do"
        elif not follows(before, raw):
            yield (
                f"{JOURNAL_NAME}:{number}",
                "the line is not the one that was written behind the line before",
            )
        before = chain or before
    if bare and before:
        report.notes.append(f"the journal's first {bare} lines carry no hash")
    if _is_torn(path):
        report.notes.append("the journal's last line is torn and counts as not written")


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 1, 0))
        return size > 0 and file.read(1) != b"\n"


def _trajectories(state: RunState) -> Iterator[tuple[str, str]]:
    for place, what in recheck_trajectories(state):
        yield f"{JOURNAL_NAME}: {place}", what


def _check_results(run_dir: Path, results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    derived = results_text(results)
    try:
        raw = (run_dir / RESULTS_NAME).read_bytes()
        if raw == derived.encode("utf-8"):
            return
        recorded = json.loads(raw)
    except FileNotFoundError:
        yield RESULTS_NAME, "is missing"
        return
    except (OSError, ValueError, RecursionError) as error:
        yield RESULTS_NAME, f"cannot be read: {error}"
        return
    found = False
    for place, one, other in _compare(recorded, json.loads(derived)):
        found = True
        yield f"{RESULTS_NAME}: {place}", f"is {_shown(one)}, the journal gives {_shown(other)}"
    if not found:
        yield from _check_text(run_dir, RESULTS_NAME, derived)


def _compare(recorded: object, derived: object) -> Iterator[tuple[str, object, object]]:
    """Yield the places at which two JSON values differ, without recursion: models nest deeply."""
    left: list[tuple[str, object, object]] = [("", recorded, derived)]
    while left:
        place, one, other = left.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            keys = [*other, *(key for key in one if key not in other)]
            left += [
                (_below(place, key), one.get(key, _ABSENT), other.get(key, _ABSENT)) for key in keys[::-1]
            ]
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            left += [(f"{place}[{index}]", one[index], other[index]) for index in range(len(one) - 1, -1, -1)]
        elif type(one) is not type(other) or (one != other and not (one != one and other != other)):  # noqa: PLR0124 - NaN
            yield place, one, other


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "not there"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = "an object" if isinstance(value, dict) else repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _check_text(
    run_dir: Path, name: str, derived: str, shown_name: str | None = None
) -> Iterator[tuple[str, str]]:
    shown = shown_name or name
    try:
        recorded = (run_dir / name).read_bytes()
    except FileNotFoundError:
        yield shown, "is missing"
        return
    except OSError as error:
        yield shown, f"cannot be read: {error.strerror or error}"
        return
    wanted = derived.encode("utf-8", errors="replace")
    if recorded == wanted:
        return
    lines, others = recorded.split(b"\n"), wanted.split(b"\n")
    number = next(
        (index for index, (one, other) in enumerate(zip(lines, others, strict=False), 1) if one != other),
        min(len(lines), len(others)) + 1,
    )
    yield f"{shown}:{number}", "the line is not what the journal gives"


def _check_scores(
    run_dir: Path, state: RunState, journal: JournalFacts, report: RunReport
) -> Iterator[tuple[str, str]]:
    """Yield what scores by other scorers say otherwise than the journal; only the exact ones are derived."""
    try:
        files, stale = read_scores(run_dir, journal)
    except UserError as error:
        yield SCORES_DIR, error.message
        return
    report.notes.extend(stale)
    wanted = {row.key: row for row in exact_rows(state)}
    for scorer, file in files.items():
        rows = {row.key: row for row in file.rescoring.rows}
        for key in sorted({*wanted, *rows}):
            one, other = rows.get(key), wanted.get(key)
            if one is not None and other is not None and scorer is not Scorer.EXACT:
                one = replace(one, grade=other.grade)
            if one != other:
                place = f"{SCORES_DIR}/{scorer.value}.json: {key}"
                yield place, "is not what the journal gives"


def _check_traces(run_dir: Path, state: RunState) -> Iterator[tuple[str, str]]:
    directory = run_dir / TRACE_DIR
    wanted = set()
    for trajectory in state.trajectories.values():
        name = trace_name(trajectory)
        wanted.add(name)
        problem = state.problems(trajectory.key.dataset)[trajectory.key.problem_id]
        yield from _check_text(
            directory, name, render_trace(trajectory, problem), shown_name=f"{TRACE_DIR}/{name}"
        )
    there = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    for name in there:
        if name not in wanted:
            yield f"{TRACE_DIR}/{name}", "belongs to no trajectory of the journal"
