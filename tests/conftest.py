"""Settings for all tests: asyncio alone, and no API key of whoever runs them."""

import sys
from collections.abc import Iterator

import hypothesis
import pytest

# A busy machine is no fault of the code: no example is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture
def anyio_backend() -> str:
    """The backend that runs use."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_key_of_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(autouse=True)
def _whoever_traces_goes_on_tracing() -> Iterator[None]:
    """What takes the trace function away ends the count of coverage for all tests behind it, in silence."""
    before = sys.gettrace()
    yield
    assert sys.gettrace() is before
