"""What comes before a run: this machine is examined, what is missing fetched, and the plan made of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from runner.artifacts import Artifacts, fetch
from runner.cli.resuming import Asked
from runner.doctor import Check, Question, Report, State, examine
from runner.doctor.gold import GOLD, judge_gold
from runner.engines.base import Engine
from runner.engines.reports import ReplicaReport
from runner.errors import UserError
from runner.plan import Plan, build_engine, make_plan
from runner.resources import PROFILE_DIR
from runner.views.fetching import FetchPhases, Shows
from runner.views.phases import Phase
from sandbox import Sandbox


@dataclass(frozen=True)
class Fetching:
    """How the files that a manifest names are come by. Without `network` only what is here is taken."""

    source: Path | None = None
    """A directory to take them from in the place of the network."""
    allow_unverified: bool = False
    network: bool = True

    def applied(self, question: Question) -> Question:
        """Return the question as the doctor has to ask it: what is not fetched need not be to be had."""
        if self.network and self.source is None:
            return question
        offline = replace(question, fetching=replace(question.fetching, offline=True), source=self.source)
        store = question.store
        if self.source is None and store is not None and store.missing(question.groups):
            return replace(offline, manifest=None)  # then the files are the profile's own
        return offline


class Watches(Shows, Protocol):
    """What is needed of a display."""

    def brief(self, lines: Sequence[str]) -> None:
        """Say what is to be known of the run before it begins."""

    def note_engine(self, report: ReplicaReport) -> None:
        """Take note of an engine that came up, or did not."""


async def gather(
    question: Question, fetching: Fetching, shows: Shows | None = None, *, touch: bool = True
) -> Artifacts | None:
    """Return what the profile's manifest names, fetched where it is not here.

    Unless `touch` nothing is moved or written. None where the profile has nothing to fetch; and where
    something is missing and nothing may be fetched: then the plan says which of the profile's files it
    misses. Raises `UserError` and `InfrastructureError`.
    """
    store = question.store
    if store is None:
        return None
    fetches = touch and (fetching.network or fetching.source is not None)
    if not fetches and store.missing(question.groups):
        return None
    vllm = question.vllm
    return await fetch(
        store.manifest,
        store,
        groups=question.groups,
        source=fetching.source,
        revision=None if vllm is None else vllm.revision,
        allow_unverified=fetching.allow_unverified,
        listener=None if shows is None else FetchPhases(shows),
        settings=fetching.applied(question).fetching,
        touch=touch,
    )


def plan_of(asked: Asked, artifacts: Artifacts | None) -> Plan:
    """Make the plan of what was asked for; raise `UserError`."""
    return make_plan(
        asked.profile,
        overrides=asked.overrides,
        data=asked.data,
        only=asked.only,
        limit=asked.limit,
        artifacts=artifacts,
    )


class Preparation:
    """Prepares one run, with its sandbox open: brokers leave when nobody comes, and fetching takes long."""

    def __init__(
        self,
        asked: Asked,
        question: Question,
        fetching: Fetching,
        shows: Watches,
        *,
        examines: bool = True,
        engine_logs: Path | None = None,
    ) -> None:
        """`question` is the doctor's about the same run; `engine_logs` is where engines write theirs."""
        self._asked, self._question, self._fetching = asked, question, fetching
        self._shows, self._examines, self._engine_logs = shows, examines, engine_logs

    async def __call__(self, sandbox: Sandbox) -> tuple[Plan, Engine]:
        """Return plan and engine, not started; raise `UserError` with every remedy where the machine is not
        ready."""
        if self._examines:
            self._shows.phase(Phase.CHECKING, "this machine")
            self._tell(await examine(self._fetching.applied(self._question), sandbox=sandbox))
        artifacts = await gather(self._question, self._fetching, self._shows)
        plan = plan_of(self._asked, artifacts)
        if self._examines and artifacts is not None:
            self._check_gold(plan)
        engine = build_engine(plan, log_dir=self._engine_logs)
        engine.report_to(self._shows.note_engine)
        engine.show_nodes_to(FetchPhases(self._shows))
        self._shows.brief(plan.expectation_lines())
        self._shows.phase(Phase.STARTING, "engines")
        return plan, engine

    def _tell(self, report: Report) -> None:
        """Say what a person should know before the run; refuse what cannot become one."""
        for check in report.checks:
            if check.state is State.WARNING:
                self._shows.note(_in_a_line(check))
        if not report.holds:
            raise not_ready(self._question, report)

    def _check_gold(self, plan: Plan) -> None:
        """Grade the gold answers of what was fetched behind the examination."""
        finding = judge_gold(list(plan.datasets), [])
        if finding.state is State.FAILED:
            raise UserError(f"{GOLD}: {finding.detail}", remedy=finding.remedy)


def not_ready(question: Question, report: Report) -> UserError:
    """Return the error of a machine that a run would fail on, every finding with its remedy."""
    profile, path = question.profile.name, question.profile_path
    asked = path.stem if path.parent == PROFILE_DIR else str(path)
    failed = [_in_a_line(one) for one in report.checks if one.state is State.FAILED]
    return UserError(
        "\n  ".join((f"this machine is not ready for {profile}:", *failed)),
        remedy=f"mend it, and see every check: recount doctor {asked}; --no-doctor starts without looking",
    )


def _in_a_line(check: Check) -> str:
    remedy = f" ({check.remedy})" if check.remedy else ""
    return f"{check.name}: {check.detail}{remedy}"
