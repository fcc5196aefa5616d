"""Packages that only an extra brings. Tests of them are skipped without, and fail where they must not be."""

import importlib.util
import os

import pytest

REQUIRED_VARIABLE = "RECOUNT_REQUIRE_EXTRAS"
"""Set where every extra is installed, so that a test that did not run is a failure there."""


def needs(package: str) -> pytest.MarkDecorator:
    """Skip without `package`, unless extras are required: then the test runs, and fails for want of it."""
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(
        missing and not os.environ.get(REQUIRED_VARIABLE), reason=f"{package} is not installed"
    )
