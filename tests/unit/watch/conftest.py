"""A journal and a viewer on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.watched import Journal, Viewer, Watch

from runner.views.watch.app import WatchApp


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Not there yet: the first event makes it."""
    directory = tmp_path / "run"
    directory.mkdir()
    return Journal(directory / "journal.jsonl")


@pytest.fixture
def watch(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Opens the viewer on the journal; `size` is columns and lines.

    It looks at the journal when the test says so: the pilot waits after every key until the process is idle,
    which a viewer that looks all the time never is.
    """
    monkeypatch.setattr("runner.views.watch.app.POLL_S", 3600.0)
    monkeypatch.setattr(WatchApp, "_follow", lambda _: anyio.sleep_forever())

    @asynccontextmanager
    async def open_viewer(size: tuple[int, int] = (120, 35)) -> AsyncIterator[Viewer]:
        app = WatchApp(journal.path, clock=lambda: journal.now)
        async with app.run_test(size=size) as pilot:
            yield Viewer(app, pilot)

    return open_viewer
