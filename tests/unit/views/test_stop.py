"""A display hears of a signal before the run does."""

import os
import signal

import anyio
import pytest

from runner.signals import Stop, watch_signals

pytestmark = pytest.mark.anyio


async def test_who_listens_is_told_before_anything_is_cancelled() -> None:
    told: list[tuple[str, bool]] = []
    stop = Stop()
    with stop.guard():
        scope = stop._scopes[-1]
        stop.listener = lambda name: told.append((name, scope.cancel_called))
        stop.stop("SIGTERM")
        await anyio.sleep_forever()

    assert told == [("SIGTERM", False)]


async def test_a_real_signal_reaches_who_listens() -> None:
    told: list[str] = []
    async with watch_signals() as stop:
        stop.listener = told.append
        with stop.guard():
            os.kill(os.getpid(), signal.SIGTERM)
            await anyio.sleep(30)

    assert told == ["SIGTERM"]
