"""A run asks no more of the sandbox at once than its host can take, and says what it lowered."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from support.builders import answer, bash, write_lines, write_profile
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result
from support.runs import run_plan
from typing_extensions import override

from runner.engines.base import GenerationRequest
from runner.errors import UserError
from runner.hashing import sha256_file
from runner.plan import Plan, make_plan
from runner.run import RunOutcome
from sandbox import ActionResult, Capacity

pytestmark = pytest.mark.anyio
UNUSED_ENGINE = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}


class SmallSandbox(FakeSandbox):
    """Counts how much is asked of it at once."""

    def __init__(self, capacity: Capacity) -> None:
        super().__init__(self._run)
        self._capacity = capacity
        self.running = self.most_running = self.most_open = 0

    async def _run(self, _: str) -> ActionResult:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.most_open = max(self.most_open, sum(not one.closed for one in self.workspaces))
        await anyio.sleep(0.01)
        self.running -= 1
        return result("42\n")

    @override
    async def capacity(self) -> Capacity:
        return self._capacity

    @override
    async def identity(self) -> dict[str, str]:
        return {"kind": "fake", "policy": "tight", "policy_sha256": "0" * 64}


def solve(request: GenerationRequest) -> str:
    return bash("echo 42") if request.turn == 0 else answer("42")


def plan_for(tmp_path: Path, problems: int) -> Plan:
    return make_plan(
        str(write_profile(tmp_path / "in", UNUSED_ENGINE, problems={f"p{i}": "42" for i in range(problems)}))
    )


async def run(tmp_path: Path, plan: Plan, sandbox: FakeSandbox) -> RunOutcome:
    with anyio.fail_after(60):
        return await run_plan(
            plan,
            FakeEngine(solve),
            sandbox,
            run_id="run",
            results_dir=tmp_path / "out",
            listener=lambda _: None,
        )


async def test_what_runs_at_once_is_lowered_to_what_the_host_can_take(tmp_path: Path) -> None:
    sandbox = SmallSandbox(Capacity(actions_at_once=2, workspaces_at_once=3, notes=("only two",)))
    outcome = await run(tmp_path, plan_for(tmp_path, 12), sandbox)
    assert outcome.results["complete"]
    assert (sandbox.most_running, sandbox.most_open) == (2, 3)
    assert outcome.results["concurrency"] == {
        "trajectories": 3,
        "generations": 64,
        "tools": 2,
        "notes": ["only two"],
    }
    assert "only two" in (outcome.run_dir / "summary.txt").read_text()


async def test_a_roomy_host_changes_nothing(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path, 2), SmallSandbox(Capacity(100, 1000)))
    assert outcome.results["concurrency"]["trajectories"] == 64
    assert outcome.results["concurrency"]["notes"] == []


async def test_a_sandbox_under_another_policy_is_a_deviation_that_names_both(tmp_path: Path) -> None:
    outcome = await run(tmp_path, plan_for(tmp_path, 1), SmallSandbox(Capacity()))
    assert "the sandbox's policy is tight, not the profile's report" in outcome.results["deviations"]


async def test_a_sandbox_that_keeps_too_little_output_is_refused_before_the_run(tmp_path: Path) -> None:
    sandbox = SmallSandbox(Capacity())
    sandbox.capture_bytes = 399
    with pytest.raises(UserError, match=r"needs 400 bytes .* keeps 399"):
        await run(tmp_path, plan_for(tmp_path, 1), sandbox)
    assert not (tmp_path / "out").exists()


def test_the_pinned_file_from_another_place_is_no_deviation(tmp_path: Path) -> None:
    profile = write_profile(tmp_path, UNUSED_ENGINE)
    pinned = sha256_file(tmp_path / "set.jsonl")
    profile.write_text(
        profile.read_text().replace('path = "set.jsonl"', f'path = "gone"\nsha256 = "{pinned}"')
    )
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes((tmp_path / "set.jsonl").read_bytes())
    assert make_plan(str(profile), data={"set": moved}).deviations == ()
    write_lines(moved, [{"id": "x", "question": "another?", "answer": "1"}])
    changed = make_plan(str(profile), data={"set": moved})
    assert changed.deviations == (f"changed: data.set = {moved}",)


def test_how_much_runs_at_once_is_no_deviation(tmp_path: Path) -> None:
    plan = replace(plan_for(tmp_path, 1), overrides={"concurrency.tools": 2, "limits.max_turns": 3})
    assert plan.deviations == ("changed: limits.max_turns = 3",)
