"""Debian's Chromium, without a window, driven by Playwright (which brings no browser of its own here).

Where there is no Chromium the tests are skipped, with the reason. `RECOUNT_NEEDS_BROWSER=1` makes that a
failure, for where one has to be.
"""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

NEEDS_BROWSER = "RECOUNT_NEEDS_BROWSER"
_MISSING = "there is no chromium on PATH (Debian's package chromium)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module, whose tests have a context each.

    No longer than that: while Playwright is open, its event loop runs, and no other test may run one.
    """
    chromium = shutil.which("chromium")
    if chromium is None and os.environ.get(NEEDS_BROWSER):
        pytest.fail(f"{NEEDS_BROWSER} is set, and {_MISSING}")
    if chromium is None:
        pytest.skip(_MISSING)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--disable-gpu"])
        yield running
        running.close()
