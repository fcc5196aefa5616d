"""Task groups raise groups, and wait for all; callers want the error, and sometimes the first alone."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup

T = TypeVar("T")


@contextmanager
def first_error_only() -> Iterator[None]:
    """Raise the first error of an exception group in its place.

    The first task to fail cancels the others, so what else the group holds followed from it.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__


async def first_of(*awaited: Callable[[], Awaitable[T]]) -> T:
    """Return what the first of these returns, and cancel the others; raise the first error."""
    found: list[T] = []

    async def wait(one: Callable[[], Awaitable[T]]) -> None:
        found.append(await one())
        tasks.cancel_scope.cancel()

    with first_error_only():
        async with anyio.create_task_group() as tasks:
            for one in awaited:
                tasks.start_soon(wait, one)
    return found[0]
