"""Turns for a pool of made-up replicas."""

import anyio

from runner.engines.base import (
    Completion,
    GenerationRequest,
)
from support.fake_replica import FakePool, request


async def generate_all(pool: FakePool, *requests: GenerationRequest) -> list[Completion]:
    """Generate all at once; completions in the requests' order."""
    done: dict[int, Completion] = {}

    async def one(index: int) -> None:
        done[index] = await pool.generate(requests[index])

    async with anyio.create_task_group() as tasks:
        for index in range(len(requests)):
            tasks.start_soon(one, index)
    return [done[index] for index in range(len(requests))]


def four(turn: int = 0) -> list[GenerationRequest]:
    return [request(f"p{index}", turn) for index in range(4)]
