"""Small runs of a profile that one test needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from runner.engines.base import Engine, EngineUnavailableError, GenerationRequest
from runner.events import Event
from runner.oversight import Oversight
from runner.plan import Plan, build_engine, make_plan
from runner.run import RunOutcome
from support.builders import answer, bash, write_profile
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox
from support.openai_server import MODEL, Reply, completion
from support.runs import run_plan

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
    oversight: Oversight | None = None,
) -> RunOutcome:
    with anyio.fail_after(60):
        return await run_plan(
            plan,
            engine or build_engine(plan),
            sandbox or FakeSandbox(),
            run_id="run",
            results_dir=tmp_path / "results",
            listener=listener,
            oversight=oversight,
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


def engine_dead_for(problem_id: str) -> tuple[FakeEngine, FakeSandbox]:
    def say(request: GenerationRequest) -> str:
        if request.key.problem_id == problem_id and request.turn == 1:
            raise EngineUnavailableError("dead")
        return solve(request)

    return FakeEngine(say), FakeSandbox()
