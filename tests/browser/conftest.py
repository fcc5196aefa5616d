"""Debian's Chromium, without a window, driven by Playwright.

Where there is no Chromium the tests are skipped, with the reason. `RECOUNT_NEEDS_BROWSER=1` makes that a
failure, for where one is to be.
"""

import os
import shutil
from collections.abc import Iterator

import pytest

NEEDS_BROWSER = "RECOUNT_NEEDS_BROWSER"

try:
    from playwright.sync_api import Browser, sync_playwright
except ImportError:  # pragma: no cover - only where the development packages are not installed
    _MISSING = "the package playwright is not installed"
else:
    _MISSING = "" if shutil.which("chromium") else "there is no chromium on PATH (Debian's package chromium)"


def pytest_ignore_collect() -> bool | None:
    """Leave the directory out where its modules could not be imported, unless a browser has to be here."""
    if _MISSING and not os.environ.get(NEEDS_BROWSER) and "playwright" in _MISSING:
        return True
    return None


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """One browser for all tests; each has a context of its own."""
    if _MISSING and os.environ.get(NEEDS_BROWSER):
        pytest.fail(f"{NEEDS_BROWSER} is set, and {_MISSING}")
    if _MISSING:
        pytest.skip(_MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu"])
        yield running
        running.close()
