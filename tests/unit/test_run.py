"""What a run writes, and that it can be derived again."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.builders import answer, bash, write_lines
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result
from support.openai_server import MODEL, OpenAIServer, Reply, completion, error
from support.plain_runs import (
    engine_dead_for,
    files,
    plan_for,
    respond_by_turn,
    run,
    scored,
    solve,
)

from runner.engines.base import GenerationRequest
from runner.errors import ExitCode
from runner.events import EndReason, Event, RunEnded, RunStarted, TurnDone
from runner.journal import read_journal
from runner.protocol.decoding import MAX_DEPTH
from runner.run import write_results
from runner.signals import Stop

pytestmark = pytest.mark.anyio


KEY = "sk-very-secret-0123456789"


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
