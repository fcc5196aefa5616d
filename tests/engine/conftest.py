"""Tests of real engines: they run where vLLM and a small model are (`./test --engines`), elsewhere they skip.

Skipped and not deselected, so that whoever runs everything reads what was not shown. Test modules import
vLLM, Ray and torch inside of tests, or they could not be collected to be skipped.
"""

import importlib.util
import os
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_MODEL = os.environ.get("RECOUNT_TEST_MODEL", "")


def _missing() -> str | None:
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not in this environment: ./test --engines"
    if not _MODEL:
        return "RECOUNT_TEST_MODEL names no model: ./test --engines"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this directory, and skip it where it cannot run."""
    ours = [item for item in items if _HERE in item.path.parents]
    if ours and _MODEL and not (Path(_MODEL) / "config.json").is_file():
        raise pytest.UsageError(f"RECOUNT_TEST_MODEL={_MODEL} holds no config.json: name a model's directory")
    reason = _missing()
    for item in ours:
        item.add_marker(pytest.mark.engines)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def small_model() -> Path:
    """The directory of a small chat model."""
    return Path(_MODEL)
