"""Task groups raise groups; callers want the error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup


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
