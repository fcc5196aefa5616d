"""Going on with a run: finding those that stopped, and what a resumed run is asked for."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.clean import clean_text
from runner.cli.runs import run_directory
from runner.errors import UserError
from runner.events import CommandRecord, EndReason, RunEnded, RunStarted
from runner.journal import JOURNAL_NAME, JournalError, is_being_written, read_journal, read_state
from runner.plan import Plan
from runner.resume import compare_plan
from runner.state import RunState
from runner.views.watch.find import newest_runs

MOST_LOOKED_AT = 50
"""Runs, the newest first, whose first and last events are read."""
MOST_READ = 3
"""Of them read whole, which takes about a second for 30 MB."""
_LAST_BYTES = 1 << 16


def way_on(run_dir: Path) -> str:
    """Return the command that goes on with a run."""
    return f"recount eval --resume {clean_text(str(run_dir), keep_lines=False)}"


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that stopped before every trajectory had its score."""

    run_dir: Path
    state: RunState

    @property
    def started(self) -> RunStarted:
        """Its first event."""
        if self.state.started is None:
            raise JournalError(f"{self.run_dir / JOURNAL_NAME}: the run never started")
        return self.state.started

    @property
    def line(self) -> str:
        """What to tell a person, in a line."""
        missing, planned = len(self.state.missing()), len(self.state.planned())
        how = "was killed" if self.state.end_reason is None else f"ended {self.state.end_reason.value}"
        name = clean_text(self.run_dir.name, keep_lines=False)
        return (
            f"{name} of this profile {how} with {missing} of {planned} trajectories missing;"
            f" to go on with it: {way_on(self.run_dir)}"
        )


@dataclass(frozen=True)
class Asked:
    """What `make_plan` takes."""

    profile: str
    overrides: Mapping[str, Any]
    data: Mapping[str, Path]
    only: tuple[str, ...]
    limit: int | None


def find_unfinished(results_dir: Path, plan: Plan) -> list[UnfinishedRun]:
    """Return runs that stopped and would go on with this plan, the newest first.

    A journal that is damaged or being written is none of them: this is for an offer, and never fails.
    """
    found: list[UnfinishedRun] = []
    read = 0
    for run_dir in newest_runs(results_dir)[:MOST_LOOKED_AT]:
        path = run_dir / JOURNAL_NAME
        try:
            if not _may_go_on(path, plan) or is_being_written(path):
                continue
            read += 1
            state = read_state(path)
        except JournalError:
            continue
        if state.missing():
            found.append(UnfinishedRun(run_dir, state))
        if read == MOST_READ:
            break
    return found


def find_resumable(named: str, results_dir: Path) -> Path:
    """Return the directory of the run that `--resume` names, by directory or id; raise `UserError`."""
    return run_directory(named, results_dir)


def asked_again(started: RunStarted, given: Asked | None) -> Asked:
    """Return what the run was asked for, with what is given now on top.

    `given.profile` may be empty: then it is the run's. Whether what is given makes another run is found when
    the plan is made and compared. Raises `UserError` for a journal that does not say what was asked.
    """
    command = started.command
    if command is None:
        if given is None or not given.profile:
            raise UserError(
                f"the journal of {started.run_id} does not hold what the run was asked for: an earlier"
                " Recount wrote it",
                remedy="name the profile and every option again: recount eval PROFILE … --resume RUN",
            )
        return given
    recorded = _recorded(command)
    if given is None:
        return recorded
    return Asked(
        profile=given.profile or recorded.profile,
        overrides={**recorded.overrides, **given.overrides},
        data={**recorded.data, **given.data},
        only=given.only or recorded.only,
        limit=recorded.limit if given.limit is None else given.limit,
    )


def was_lenient(started: RunStarted) -> bool:
    """Say whether the run let files pass that are not the published ones: its other parts have to as well."""
    return started.command is not None and started.command.allow_unverified


def offer_lines(found: Sequence[UnfinishedRun]) -> list[str]:
    """Return what `eval` says of runs that stopped before it starts another; nothing where there are none."""
    return [one.line for one in found[:1]]


def _recorded(command: CommandRecord) -> Asked:
    return Asked(
        profile=command.profile,
        overrides=command.overrides,
        data={name: Path(path) for name, path in command.data.items()},
        only=command.only,
        limit=command.limit,
    )


def _may_go_on(path: Path, plan: Plan) -> bool:
    """Say from a journal's two ends whether it is a run of this plan that lacks something."""
    started = next(iter(read_journal(path)), None)
    if not isinstance(started, RunStarted) or started.profile.get("name") != plan.profile.name:
        return False
    last = _last_line(path)
    complete = RunEnded(reason=EndReason.COMPLETE)
    if f'"type":"{complete.type}"' in last and f'"reason":"{complete.reason.value}"' in last:
        return False
    return not compare_plan(started, plan).refused


def _last_line(path: Path) -> str:
    """Return the last whole line, or its end where it is long; the end of a run is short."""
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
            lines = file.read(_LAST_BYTES).split(b"\n")
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error
    return lines[-2].decode("utf-8", errors="replace") if len(lines) > 1 else ""
