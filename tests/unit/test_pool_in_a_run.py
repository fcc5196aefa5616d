"""A real pool in a whole run: what it tells is in journal and results, its losses cost no trajectory."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from support.builders import answer, bash, write_profile
from support.fake_replica import FakePool, FakeReplica, completion
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan

from runner.engines.base import Completion, GenerationRequest
from runner.engines.pool import RestartPolicy
from runner.engines.reports import ReplicaState
from runner.events import EngineDown, EngineSample, EngineUp, TurnDone
from runner.journal import read_journal
from runner.plan import make_plan

pytestmark = pytest.mark.anyio


async def solve(request: GenerationRequest) -> Completion:
    await anyio.sleep(0.05)
    text = bash("echo 42") if request.turn == 0 else answer("42")
    return replace(completion(request), text=text)


async def test_a_replica_that_dies_and_comes_back_stands_in_journal_and_results(tmp_path: Path) -> None:
    async def die_once(request: GenerationRequest) -> Completion:
        if len(b.started_at) == 1:
            b.kill()
            await anyio.sleep_forever()
        return await solve(request)

    a, b = FakeReplica("a", 1, on_turn=solve), FakeReplica("b", 1, on_turn=die_once)
    pool = FakePool([a, b], policy=RestartPolicy(wait_s=0.01))
    problems = dict.fromkeys(("p0", "p1", "p2", "p3"), "42")
    engine = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}
    profile = write_profile(tmp_path / "input", engine, problems=problems)

    with anyio.fail_after(30):
        outcome = await run_plan(
            make_plan(str(profile)),
            pool,
            FakeSandbox(),
            run_id="run",
            results_dir=tmp_path,
            listener=lambda _: None,
        )

    events = list(read_journal(outcome.run_dir / "journal.jsonl"))
    ups = [(one.name, one.starts) for one in events if isinstance(one, EngineUp)]
    assert ups == [("a", 1), ("b", 1), ("b", 2)]
    (down,) = (one for one in events if isinstance(one, EngineDown))
    assert (down.name, down.cause, down.requeued) == ("b", "b was killed", 1)
    last = [one for one in events if isinstance(one, EngineSample)][-1]
    assert last is events[-2]
    assert [one.state for one in last.engines] == [ReplicaState.SERVING] * 2
    turns = [one for one in events if isinstance(one, TurnDone)]
    assert {name: one.turns for name, one in zip("ab", last.engines, strict=True)} == {
        name: sum(turn.engine == name for turn in turns) for name in "ab"
    }

    assert outcome.results["complete"]
    found = outcome.results["engines"]
    run = found["run"]
    assert (run["turns"], run["completion_tokens"], run["losses"], run["restarts"]) == (8, 80, 1, 1)
    assert (run["mean_batch"], run["given_up"]) == (1.0, 0)
    assert 0.0 < run["idle_share"] < 1.0
    assert run["busy_s"] >= 8 * 0.05
    assert run["serving_s"] <= 2 * run["wall_s"]
    assert run["queue_s"] > 0.0
    assert found["trajectories"]["generation_wait_share"] > 0.0
    assert found["by_engine"]["b"]["last_losses"][0]["back_after_s"] < 10
