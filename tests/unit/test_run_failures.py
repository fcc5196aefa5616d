"""What may fail in a run: whose failure it is, what is left, and that nothing of it is a score."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.builders import answer, bash, write_lines
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result
from support.openai_server import MODEL, OpenAIServer, error
from support.plain_runs import (
    engine_dead_for,
    files,
    plan_for,
    respond_by_turn,
    run,
    scored,
    solve,
)
from typing_extensions import Self, override

from runner.breaker import BreakerPolicy
from runner.engines.base import EngineUnavailableError, GenerationRequest, RequestRefusedError
from runner.errors import ExitCode, InfrastructureError, JournalWriteError, UserError
from runner.events import EndReason, Event, RunEnded
from runner.journal import read_journal
from runner.oversight import Oversight
from runner.run import write_results
from sandbox import ActionResult, SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError

pytestmark = pytest.mark.anyio


async def test_a_server_that_dies_for_good_leaves_the_rest_unfinished_and_unscored(tmp_path: Path) -> None:
    """Seen without the pause that more failures in a row would bring about."""
    with OpenAIServer(respond_by_turn) as server:
        plan = plan_for(
            tmp_path,
            *("p0", "p2", "p3"),
            extra="[concurrency]\ntrajectories = 1\n",
            kind="openai",
            model=MODEL,
            base_urls=[server.url],
            attempts=1,
        )

        def die_after_the_first(event: Event) -> None:
            if event.type == "terminated":  # type: ignore[attr-defined]
                server.respond = lambda _: error(500, "CUDA error")

        never_paused = Oversight(breaker=BreakerPolicy(failures=100))
        outcome = await run(tmp_path, plan, listener=die_after_the_first, oversight=never_paused)

    assert (outcome.reason, outcome.exit_code) == (EndReason.INCOMPLETE, ExitCode.INCOMPLETE)
    assert scored(outcome) == {"p0:sample00": 1.0}
    found = outcome.results["datasets"]["set"]
    assert [(one["task_id"], one["attempts"]) for one in found["unfinished"]] == [("p2", 3), ("p3", 3)]
    assert "CUDA error" in found["unfinished"][0]["cause"]


async def test_a_script_that_is_too_short_leaves_its_trajectory_unfinished_at_once(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, kind="scripted", script="script.jsonl")
    write_lines(
        tmp_path / "input" / "script.jsonl",
        [{"dataset": "set", "id": "p0", "sample": 0, "completions": ["Hm."]}],
    )

    outcome = await run(tmp_path, plan)

    (left,) = outcome.results["datasets"]["set"]["unfinished"]
    assert (left["attempts"], left["turns_done"]) == (1, 1)
    assert outcome.exit_code is ExitCode.INCOMPLETE


@pytest.mark.parametrize("deaths", [1, 2])
async def test_an_engine_that_comes_back_costs_attempts_and_leaves_no_trace_of_them(
    tmp_path: Path, deaths: int
) -> None:
    def flaky(request: GenerationRequest) -> str:
        if request.attempt <= deaths:
            if request.turn == 1:
                raise EngineUnavailableError("dead")
            return bash(f"echo abandoned {request.attempt}")
        return solve(request)

    outcome = await run(tmp_path, plan_for(tmp_path), FakeEngine(flaky))

    (record,) = outcome.results["datasets"]["set"]["trajectories"]
    assert (record["score"], record["trace_rounds"], record["turn_seeds"]) == (1.0, 1, [1000, 1097])
    assert "abandoned" not in json.dumps(outcome.results)
    assert "abandoned" not in files(outcome.run_dir / "traces")
    assert outcome.results["datasets"]["set"]["infrastructure_retries"] == deaths
    assert outcome.exit_code is ExitCode.OK


def sandbox_dead_for(problem_id: str) -> tuple[FakeEngine, FakeSandbox]:
    def run_tool(command: str) -> ActionResult:
        if command == problem_id:
            raise SandboxInfrastructureError("dead")
        return result()

    def say(request: GenerationRequest) -> str:
        return bash(request.key.problem_id) if request.turn == 0 else answer("42")

    return FakeEngine(say), FakeSandbox(run_tool)


@pytest.mark.parametrize("dead_for", [engine_dead_for, sandbox_dead_for])
async def test_a_failure_of_ours_that_stays_is_unfinished_and_never_a_score(
    tmp_path: Path, dead_for: Callable[[str], tuple[FakeEngine, FakeSandbox]]
) -> None:
    engine, sandbox = dead_for("p1")

    outcome = await run(tmp_path, plan_for(tmp_path, "p0", "p1", "p2", "p3"), engine, sandbox)

    assert (outcome.reason, outcome.exit_code) == (EndReason.INCOMPLETE, 4)
    assert scored(outcome) == {"p0:sample00": 1.0, "p2:sample00": 1.0, "p3:sample00": 1.0}
    found = outcome.results["datasets"]["set"]
    mean = {
        "value": 1.0,
        "standard_error": None,
        "scored": 3,
        "planned": 4,
        "if_missing_wrong": 0.75,
        "if_missing_right": 1.0,
    }
    assert {name: found["mean"][name] for name in mean} == mean
    assert [one["task_id"] for one in found["unfinished"]] == ["p1"]
    assert found["summary"]["count"] == 3
    assert outcome.results["complete"] is False
    shown = " ".join((outcome.run_dir / "summary.txt").read_text(encoding="utf-8").split())
    assert "1 of 4 trajectories have no score" in shown
    assert "between 0.7500 and 1.0000" in shown


async def test_wrong_limit_and_our_failure_are_three_different_things(tmp_path: Path) -> None:
    def say(request: GenerationRequest) -> str:
        happens = request.key.problem_id
        if happens == "refused":
            raise RequestRefusedError("ValueError: no")
        if happens == "dead":
            raise EngineUnavailableError("dead")
        if request.turn == 0:
            return bash("true")
        return {"wrong": answer("41"), "right": answer("42")}.get(happens, "Hm.")

    plan = plan_for(tmp_path, "wrong", "right", "limit", "refused", "dead")
    outcome = await run(tmp_path, plan, FakeEngine(say))

    found = outcome.results["datasets"]["set"]
    assert {one["task_id"]: one["termination_reason"] for one in found["trajectories"]} == {
        "wrong": "final_answer",
        "right": "final_answer",
        "limit": "max_turns",
        "refused": "request_error",
    }
    assert [one["task_id"] for one in found["unfinished"]] == ["dead"]


async def test_a_fault_of_the_program_ends_the_run_in_its_journal_and_with_results(tmp_path: Path) -> None:
    def say(request: GenerationRequest) -> str:
        if request.key.problem_id == "p1":
            raise RuntimeError("a bug")
        return solve(request)

    sandbox = FakeSandbox()
    plan = plan_for(tmp_path, "p0", "p1", extra="[concurrency]\ntrajectories = 1\n")
    with pytest.raises(RuntimeError, match="a bug"):
        await run(tmp_path, plan, FakeEngine(say), sandbox)

    run_dir = tmp_path / "results" / "run"
    last = list(read_journal(run_dir / "journal.jsonl"))[-1]
    assert isinstance(last, RunEnded)
    assert (last.reason, last.message) == (EndReason.FAILED, "RuntimeError: a bug")
    results = json.loads((run_dir / "evaluation_results.json").read_bytes())
    assert (results["end"], len(results["datasets"]["set"]["trajectories"])) == ("failed", 1)
    assert sandbox.left == 1


async def test_what_no_retry_can_mend_fails_the_run_with_results(tmp_path: Path) -> None:
    def no_image(_: str) -> ActionResult:
        raise SandboxPrerequisiteError("the image is gone", "build it")

    outcome = await run(tmp_path, plan_for(tmp_path), FakeEngine(solve), FakeSandbox(no_image))

    assert (outcome.reason, outcome.exit_code) == (EndReason.FAILED, ExitCode.INFRASTRUCTURE)
    assert outcome.state.ended is not None
    assert "the image is gone" in outcome.state.ended.message


class FailsToClose(FakeSandbox):
    """A sandbox whose daemon is gone at the end."""

    @override
    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(None, None, None)
        raise SandboxInfrastructureError("cannot remove containers")


async def test_a_sandbox_that_cannot_be_closed_costs_no_results(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="cannot remove containers"):
        await run(tmp_path, plan_for(tmp_path), FakeEngine(solve), FailsToClose())

    results = json.loads((tmp_path / "results" / "run" / "evaluation_results.json").read_bytes())
    assert (results["end"], results["complete"]) == ("complete", True)


class FailsToStart(FakeSandbox):
    """A sandbox without its image."""

    @override
    async def __aenter__(self) -> Self:
        raise SandboxPrerequisiteError("no image", "build it")


class NoIdentity(FakeSandbox):
    """A sandbox that fails between its start and the run's."""

    @override
    async def identity(self) -> dict[str, str]:
        raise SandboxInfrastructureError("the daemon is gone")


@pytest.mark.parametrize("sandbox", [FailsToStart, NoIdentity])
async def test_a_run_that_cannot_start_leaves_nothing(
    tmp_path: Path, sandbox: Callable[[], FakeSandbox]
) -> None:
    with pytest.raises(SandboxError):
        await run(tmp_path, plan_for(tmp_path), FakeEngine(solve), sandbox())

    assert not (tmp_path / "results").exists()


async def test_an_engine_that_cannot_start_leaves_nothing_and_the_sandbox_is_closed(tmp_path: Path) -> None:
    sandbox = FakeSandbox()
    with pytest.raises(UserError, match="no server answers"):
        await run(tmp_path, plan_for(tmp_path), sandbox=sandbox)

    assert not (tmp_path / "results").exists()
    assert (sandbox.entered, sandbox.left) == (1, 1)


async def test_a_run_id_that_exists_is_refused_and_its_run_left_alone(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    first = await run(tmp_path, plan, FakeEngine(solve))
    before = files(first.run_dir)

    with pytest.raises(UserError, match="exists already"):
        await run(tmp_path, plan, FakeEngine(solve))

    assert files(first.run_dir) == before


async def test_a_results_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")

    with pytest.raises(UserError, match=r"cannot create .*results/run"):
        await run(tmp_path, plan_for(tmp_path), FakeEngine(solve))


async def test_a_journal_that_cannot_be_written_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.JOURNAL_NAME", "full")
    results = tmp_path / "results"
    engine, sandbox = FakeEngine(solve), FakeSandbox()

    def make_full(*_: Any) -> Path:
        (results / "run").mkdir(parents=True)
        (results / "run" / "full").symlink_to("/dev/full")
        return results / "run"

    monkeypatch.setattr("runner.run.make_run_dir", make_full)
    with pytest.raises(JournalWriteError, match="No space left"):
        await run(tmp_path, plan_for(tmp_path), engine, sandbox)

    assert engine.requests == []
    assert (engine.closed, sandbox.left) == (1, 1)


async def test_a_results_file_that_cannot_be_written_is_ours(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path), FakeEngine(solve))
    (outcome.run_dir / "evaluation_results.json").unlink()
    (outcome.run_dir / "evaluation_results.json").mkdir()

    with pytest.raises(InfrastructureError, match=r"cannot write .*evaluation_results\.json"):
        write_results(outcome.run_dir)

    assert not list(outcome.run_dir.glob(".evaluation_results.json.*"))


async def test_a_fault_is_not_replaced_by_results_that_cannot_be_written(tmp_path: Path) -> None:
    def fail(_: GenerationRequest) -> str:
        (tmp_path / "results" / "run" / "traces").write_text("in the way")
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await run(tmp_path, plan_for(tmp_path), FakeEngine(fail))


async def test_a_traces_directory_that_cannot_be_is_ours(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path), FakeEngine(solve))
    for path in (outcome.run_dir / "traces").iterdir():
        path.unlink()
    (outcome.run_dir / "traces").rmdir()
    (outcome.run_dir / "traces").write_text("in the way")

    with pytest.raises(InfrastructureError, match=r"cannot create .*traces"):
        write_results(outcome.run_dir)
