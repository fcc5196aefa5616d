"""Whole runs: plan, engine, sandbox, journal, results. Wrong, limit and our own failures stay apart."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.builders import answer, bash, write_lines, write_profile
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result
from support.openai_server import MODEL, OpenAIServer, Reply, completion, error
from typing_extensions import Self, override

from runner.engines.base import Engine, EngineUnavailableError, GenerationRequest, RequestRefusedError
from runner.errors import ExitCode, InfrastructureError, JournalWriteError, UserError
from runner.events import EndReason, Event, RunEnded, RunStarted, TurnDone
from runner.journal import read_journal
from runner.plan import Plan, build_engine, make_plan
from runner.protocol.decoding import MAX_DEPTH
from runner.run import RunOutcome, run_plan, write_results
from runner.signals import Stop
from sandbox import ActionResult, SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError

pytestmark = pytest.mark.anyio
KEY = "sk-very-secret-0123456789"
UNUSED_ENGINE = {"kind": "openai", "model": MODEL, "base_urls": ["http://127.0.0.1:9/v1"]}


def plan_for(tmp_path: Path, *ids: str, samples: int = 1, extra: str = "", **engine: Any) -> Plan:
    problems = dict.fromkeys(ids or ("p0",), "42")
    profile = write_profile(
        tmp_path / "input", engine or UNUSED_ENGINE, problems=problems, samples=samples, extra=extra
    )
    return make_plan(str(profile))


async def run(
    tmp_path: Path,
    plan: Plan,
    engine: Engine | None = None,
    sandbox: FakeSandbox | None = None,
    listener: Callable[[Event], None] = lambda _: None,
) -> RunOutcome:
    with anyio.fail_after(60):
        return await run_plan(
            plan,
            engine or build_engine(plan),
            sandbox or FakeSandbox(),
            run_id="run",
            results_dir=tmp_path / "results",
            listener=listener,
        )


def solve(request: GenerationRequest) -> str:
    return bash("echo 42") if request.turn == 0 else answer("42")


def files(outcome_dir: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in outcome_dir.rglob("*") if path.is_file())


def scored(outcome: RunOutcome) -> dict[str, float]:
    return {one["key"]: one["score"] for one in outcome.results["datasets"]["set"]["trajectories"]}


def respond_by_turn(body: dict[str, Any]) -> Reply:
    """Solve every problem but p1, which is answered wrong."""
    messages = [message["content"] for message in body["messages"]]
    if len(messages) == 2:
        return completion(bash("echo 42"))
    return completion(answer("41" if "p1" in messages[1] else "42"))


async def test_a_run_against_a_server_writes_journal_results_summary_and_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer(respond_by_turn, tokenizes=True) as server:
        plan = plan_for(tmp_path, "p0", "p1", samples=2, kind="openai", model=MODEL, base_urls=[server.url])
        seen: list[Event] = []
        outcome = await run(
            tmp_path, plan, sandbox=FakeSandbox(lambda _: result("42\n")), listener=seen.append
        )

    assert (outcome.reason, outcome.exit_code) == (EndReason.COMPLETE, ExitCode.OK)
    assert scored(outcome) == {
        "p0:sample00": 1.0,
        "p0:sample01": 1.0,
        "p1:sample00": 0.0,
        "p1:sample01": 0.0,
    }
    events = list(read_journal(outcome.run_dir / "journal.jsonl"))
    assert events == seen
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    assert Counter(event.type for event in events) == {
        "run_started": 1,
        "trajectory_started": 4,
        "turn": 8,
        "terminated": 4,
        "run_ended": 1,
    }
    assert json.loads((outcome.run_dir / "evaluation_results.json").read_bytes()) == outcome.results
    assert "0.5000" in (outcome.run_dir / "summary.txt").read_text(encoding="utf-8")
    assert len(list((outcome.run_dir / "traces").iterdir())) == 4
    assert {one.headers["Authorization"] for one in server.chats} == {f"Bearer {KEY}"}
    assert KEY not in files(outcome.run_dir)


async def test_a_run_tells_what_it_was_made_of(tmp_path: Path) -> None:
    with OpenAIServer(respond_by_turn) as server:
        plan = plan_for(tmp_path, kind="openai", model=MODEL, base_urls=[server.url])
        outcome = await run(tmp_path, plan)

    results = outcome.results
    assert results["engine"]["model"] == MODEL
    assert results["sandbox"] == {"kind": "fake"}
    assert results["protocol"] == {
        "rules": "esopt-math-react",
        "pack": "pack.json",
        "pack_sha256": plan.pack_sha256,
    }
    assert results["datasets"]["set"]["sha256"] == plan.datasets[0].sha256
    assert results["profile"]["sampling"]["presence_penalty"] == 1.5
    assert results["reproduction"] is False
    assert results["deviations"]


async def test_a_server_that_dies_for_good_leaves_the_rest_unfinished_and_unscored(tmp_path: Path) -> None:
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

        outcome = await run(tmp_path, plan, listener=die_after_the_first)

    assert (outcome.reason, outcome.exit_code) == (EndReason.INCOMPLETE, ExitCode.INCOMPLETE)
    assert scored(outcome) == {"p0:sample00": 1.0}
    found = outcome.results["datasets"]["set"]
    assert [(one["task_id"], one["attempts"]) for one in found["unfinished"]] == [("p2", 3), ("p3", 3)]
    assert "CUDA error" in found["unfinished"][0]["cause"]


async def test_a_refused_prompt_is_the_trajectory_s_and_scored(tmp_path: Path) -> None:
    def respond(body: dict[str, Any]) -> Reply:
        return error(400, "roles must alternate") if body["max_tokens"] > 1 else completion("1")

    with OpenAIServer(respond) as server:
        plan = plan_for(tmp_path, kind="openai", model=MODEL, base_urls=[server.url])
        outcome = await run(tmp_path, plan)

    (record,) = outcome.results["datasets"]["set"]["trajectories"]
    assert (record["termination_reason"], record["score"]) == ("request_error", 0.0)
    assert record["react_error"] == "BadRequestError: roles must alternate"
    assert record["turn_seeds"] == [1000, 1000]
    assert outcome.exit_code is ExitCode.OK


async def test_a_scripted_run_replays_its_script(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "p0", "p1", "p2", "p3", kind="scripted", script="script.jsonl")
    scripts: dict[str, list[str | None]] = {
        "p0": [bash("echo 42"), answer("42")],
        "p1": [bash("echo 42"), answer("41")],
        "p2": ["Hm.", "Hm.", "Hm.", "Hm."],
        "p3": [None, None],
    }
    write_lines(
        tmp_path / "input" / "script.jsonl",
        (
            {"dataset": "set", "id": name, "sample": 0, "completions": texts}
            for name, texts in scripts.items()
        ),
    )

    outcome = await run(tmp_path, plan)

    assert outcome.reason is EndReason.COMPLETE
    summary = outcome.results["datasets"]["set"]["summary"]
    assert summary["termination_reasons"] == {"final_answer": 2, "max_turns": 1, "request_error": 1}
    assert (summary["mean_score"], summary["error_count"], summary["count"]) == (0.25, 1, 4)
    assert "the model is a script" in outcome.results["deviations"][0]


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


def engine_dead_for(problem_id: str) -> tuple[FakeEngine, FakeSandbox]:
    def say(request: GenerationRequest) -> str:
        if request.key.problem_id == problem_id and request.turn == 1:
            raise EngineUnavailableError("dead")
        return solve(request)

    return FakeEngine(say), FakeSandbox()


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


HOSTILE = "\ud800 \x00 \u2028 \x1b]52;c;x\x07 ``` \u202e"


async def test_a_model_that_writes_anything_breaks_no_file(tmp_path: Path) -> None:
    def say(request: GenerationRequest) -> str:
        return [HOSTILE, bash(HOSTILE), bash("cat"), answer(HOSTILE)][request.turn]

    outcome = await run(
        tmp_path, plan_for(tmp_path), FakeEngine(say), FakeSandbox(lambda _: result("\u2028\x1b[2J"))
    )

    (record,) = outcome.results["datasets"]["set"]["trajectories"]
    assert record["react_steps"][0]["assistant"] == HOSTILE
    again = json.loads((outcome.run_dir / "evaluation_results.json").read_bytes())
    assert again["datasets"]["set"]["trajectories"] == [record]
    shown = files(outcome.run_dir / "traces") + (outcome.run_dir / "summary.txt").read_text(encoding="utf-8")
    assert not {"\x1b", "\x00", "\u202e", "\u2028"} & set(shown)


async def test_an_action_as_deep_as_the_protocol_decodes_is_run_journaled_and_reported(
    tmp_path: Path,
) -> None:
    nested = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    deep = f'Action: {{"name": "bash", "arguments": {{"command": {nested}}}}}'

    def say(request: GenerationRequest) -> str:
        return deep if request.turn == 0 else answer("42")

    sandbox = FakeSandbox()
    outcome = await run(tmp_path, plan_for(tmp_path), FakeEngine(say), sandbox)

    assert sandbox.commands == [nested]
    assert outcome.reason is EndReason.COMPLETE
    again = json.loads((outcome.run_dir / "evaluation_results.json").read_bytes())
    (record,) = again["datasets"]["set"]["trajectories"]
    assert str(record["react_steps"][0]["action"]["arguments"]["command"]) == nested


async def test_results_can_be_derived_again_from_the_journal_alone(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path, "p0", "p1", samples=2), FakeEngine(solve))
    before = files(outcome.run_dir)
    for path in outcome.run_dir.rglob("*"):
        if path.is_file() and path.name != "journal.jsonl":
            path.unlink()

    again = write_results(outcome.run_dir)

    assert again.results == outcome.results
    assert sorted(files(again.run_dir)) == sorted(before)


async def test_a_run_that_was_killed_has_results_of_what_was_done(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path, "p0", "p1"), FakeEngine(solve))
    journal = outcome.run_dir / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-2]) + lines[-2][:10])

    killed = write_results(outcome.run_dir)

    assert killed.results["end"] is None
    assert killed.reason is EndReason.INCOMPLETE
    assert len(killed.results["datasets"]["set"]["trajectories"]) == 1


async def test_turns_say_which_server_wrote_them(tmp_path: Path) -> None:
    with OpenAIServer(respond_by_turn) as server:
        plan = plan_for(tmp_path, kind="openai", model=MODEL, base_urls=[server.url])
        outcome = await run(tmp_path, plan)
        url = server.url

    turns = [one for one in read_journal(outcome.run_dir / "journal.jsonl") if isinstance(one, TurnDone)]
    assert {one.engine for one in turns} == {url}


async def test_a_results_file_that_cannot_be_written_is_ours(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path), FakeEngine(solve))
    (outcome.run_dir / "evaluation_results.json").unlink()
    (outcome.run_dir / "evaluation_results.json").mkdir()

    with pytest.raises(InfrastructureError, match=r"cannot write .*evaluation_results\.json"):
        write_results(outcome.run_dir)

    assert not list(outcome.run_dir.glob(".evaluation_results.json.*"))


@pytest.mark.parametrize(
    ("engine", "last", "reason"),
    [
        (FakeEngine(solve), "terminated", EndReason.COMPLETE),
        (engine_dead_for("p0")[0], "unfinished", EndReason.INCOMPLETE),
    ],
    ids=["scored", "given up"],
)
async def test_a_signal_behind_the_last_trajectory_s_end_interrupts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, last: str, reason: EndReason
) -> None:
    stop = Stop()

    @asynccontextmanager
    async def watched() -> AsyncIterator[Stop]:
        yield stop

    def signal_at_the_end(event: Event) -> None:
        if event.type == last:  # type: ignore[attr-defined]
            stop.stop("SIGINT")

    monkeypatch.setattr("runner.run.watch_signals", watched)

    outcome = await run(tmp_path, plan_for(tmp_path), engine, listener=signal_at_the_end)

    assert (outcome.reason, outcome.results["end"]) == (reason, reason.value)


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
