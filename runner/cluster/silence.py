"""Actors that say nothing any more: stopped, or hanging. Ray tells only of those that are gone."""

from collections.abc import Awaitable, Callable

import anyio

INTERVAL_S = 15.0
ANSWER_TIMEOUT_S = 20.0
MOST_MISSED = 3
"""In a row: after this machine itself stood still for a while one answer is too late, and the next is not."""
SILENCE_S = MOST_MISSED * ANSWER_TIMEOUT_S


async def wait_silent(ask: Callable[[], Awaitable[object]]) -> None:
    """Return once an actor gave no sign of life for `SILENCE_S`. What `ask` raises is the caller's."""
    while True:
        await anyio.sleep(INTERVAL_S)
        for _ in range(MOST_MISSED):
            with anyio.move_on_after(ANSWER_TIMEOUT_S):
                await ask()
                break
        else:
            return
