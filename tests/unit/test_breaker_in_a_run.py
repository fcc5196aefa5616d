"""What a pause leaves in journal, state and results, and how a run that gave up goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import anyio
import pytest
from support.builders import answer, bash, write_profile
from support.events import began, ended, retried, run_resumed, run_started, terminated
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan
from support.stopping import go_on
from typing_extensions import override

from runner.breaker import BreakerPolicy
from runner.doctor import Check, Question, Report, State
from runner.engines.base import EngineUnavailableError, GenerationRequest
from runner.errors import ExitCode
from runner.events import (
    EndReason,
    Event,
    Fault,
    RunContinued,
    RunExamined,
    RunPaused,
    Stalled,
)
from runner.journal import JOURNAL_NAME, read_journal, read_state
from runner.oversight import Oversight, doctor_of
from runner.plan import Plan, make_plan
from runner.run import RunOutcome
from runner.state import RunState, reduce_events
from sandbox import Sandbox

pytestmark = pytest.mark.anyio
QUICK = BreakerPolicy(failures=3, first_probe_s=0.01, probe_cap_s=0.05, give_up_s=0.3)


def plan_for(tmp_path: Path) -> Plan:
    unused = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}
    problems = {f"p{number}": "42" for number in range(6)}
    return make_plan(str(write_profile(tmp_path / "input", unused, problems=problems)))


async def run(tmp_path: Path, engine: FakeEngine, oversight: Oversight) -> RunOutcome:
    with anyio.fail_after(60):
        return await run_plan(
            plan_for(tmp_path),
            engine,
            FakeSandbox(),
            run_id="run",
            results_dir=tmp_path / "results",
            listener=lambda _: None,
            oversight=oversight,
        )


def solve(request: GenerationRequest) -> str:
    return bash("true") if request.turn == 0 else answer("42")


class DyingEngine(FakeEngine):
    """Dead until it is revived often enough."""

    def __init__(self, revivals: float) -> None:
        super().__init__(self._turn)
        self._left = revivals

    def _turn(self, request: GenerationRequest) -> str:
        if self._left > 0:
            raise EngineUnavailableError("CUDA error")
        return solve(request)

    @override
    def revive(self) -> None:
        self._left -= 1


async def test_a_run_pauses_examines_its_machine_revives_its_engines_and_goes_on(tmp_path: Path) -> None:
    looked_with: list[Sandbox] = []

    async def examine(sandbox: Sandbox) -> Sequence[str]:
        looked_with.append(sandbox)
        return ("gpus: one is gone (reset it)",)

    told: list[str] = []
    oversight = Oversight(breaker=QUICK, examine=examine, tell=told.append)
    outcome = await run(tmp_path, DyingEngine(3), oversight)

    assert (outcome.reason, outcome.exit_code) == (EndReason.COMPLETE, ExitCode.OK)
    assert outcome.state.pauses == 1
    assert outcome.state.pause is None
    assert outcome.state.faulty_s > 0
    kinds = [type(one) for one in read_journal(outcome.run_dir / JOURNAL_NAME)]
    assert kinds.index(RunPaused) < kinds.index(RunExamined) < kinds.index(RunContinued)
    assert len(looked_with) == 1
    assert any("gpus: one is gone (reset it)" in one for one in told)


async def test_a_run_that_gives_up_has_failed_scores_nothing_and_goes_on_later(tmp_path: Path) -> None:
    outcome = await run(tmp_path, DyingEngine(float("inf")), Oversight(breaker=QUICK))

    assert (outcome.reason, outcome.exit_code) == (EndReason.FAILED, ExitCode.INFRASTRUCTURE)
    assert outcome.results["datasets"]["set"]["trajectories"] == []
    assert outcome.state.ended is not None
    assert "CUDA error" in outcome.state.ended.message
    assert "--resume" in outcome.state.ended.message
    assert outcome.state.pause is None

    later = await go_on(outcome.run_dir, plan_for(tmp_path), FakeEngine(solve))

    assert later.exit_code is ExitCode.OK
    assert len(later.results["datasets"]["set"]["trajectories"]) == 6
    assert read_state(later.run_dir / JOURNAL_NAME).pauses == 1


async def test_the_doctor_s_findings_are_what_failed_and_what_it_warns_of_with_remedies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, object]] = []

    async def found(question: object, *, sandbox: object) -> Report:
        asked.append((question, sandbox))
        checks = (
            Check("sandbox", State.FAILED, "the engine does not answer", "start it", 0.1),
            Check("disk", State.WARNING, "nearly full", None, 0.1),
            Check("clock", State.OK, "right", None, 0.1),
            Check("gpus", State.SKIPPED, "none needed", None, 0.1),
        )
        return Report("test", checks)

    monkeypatch.setattr("runner.oversight.examine", found)
    question, sandbox = cast("Question", object()), FakeSandbox()

    assert await doctor_of(question)(sandbox) == [
        "sandbox: the engine does not answer (start it)",
        "disk: nearly full",
    ]
    assert asked == [(question, sandbox)]


def paused(at: float) -> RunPaused:
    return RunPaused(at=at, fault=Fault.ENGINE, failures=5, cause="dead")


def reduced(*events: Event) -> RunState:
    return reduce_events(events)  # type: ignore[arg-type] # each is one


def test_the_state_keeps_the_pause_the_run_is_in_and_how_long_all_took() -> None:
    begun = (run_started(at=100.0), began(), retried())
    within = reduced(*begun, paused(200.0), RunExamined(at=201.0, fault=Fault.ENGINE, findings=("x",)))
    over = reduced(*begun, paused(200.0), RunContinued(at=230.0, fault=Fault.ENGINE, paused_s=30.0, probes=3))

    assert within.pause is not None
    assert within.pause.cause == "dead"
    assert (over.pause, over.pauses, over.faulty_s) == (None, 1, 30.0)


def test_a_pause_that_the_run_did_not_survive_ends_with_the_run_or_with_its_last_event() -> None:
    begun = (run_started(at=100.0), began(), paused(200.0))
    failed = reduced(*begun, ended(EndReason.FAILED).model_copy(update={"at": 260.0}))
    examined = RunExamined(at=220.0, fault=Fault.ENGINE, findings=())
    killed = reduced(*begun, examined, run_resumed().model_copy(update={"at": 9000.0}))

    assert (failed.pause, failed.faulty_s) == (None, 60.0)
    assert (killed.pause, killed.faulty_s) == (None, 20.0)


def test_reports_of_a_stalled_run_are_counted_and_touch_no_trajectory() -> None:
    stalled = Stalled(at=150.0, silent_s=900.0, report="stall-1.txt", waits=("1 wait for the engine",))
    state = reduced(run_started(at=100.0), began(), stalled, terminated())

    assert state.stalls == 1
    assert len(state.trajectories) == 1
