"""A run of a plan and an engine that are there already, with nothing to prepare."""

from typing import Any

from runner.engines.base import Engine
from runner.plan import Plan
from runner.run import RunOutcome, run_prepared
from sandbox import Sandbox


async def run_plan(plan: Plan, engine: Engine, sandbox: Sandbox, **options: Any) -> RunOutcome:
    """Run the plan; `options` are those of `run_prepared`."""

    async def prepare(_: Sandbox) -> tuple[Plan, Engine]:
        return plan, engine

    return await run_prepared(prepare, sandbox, **options)
