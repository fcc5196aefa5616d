"""What the sweep takes and what it leaves, as rules over the engine's listings."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from sandbox.engine import LABEL_RUN
from sandbox.reaper import container_goes, engine_time, volume_goes

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
MINUTES = {age: (NOW - timedelta(minutes=age)) for age in (1, 11)}


@pytest.mark.parametrize(
    ("run", "state", "age", "goes"),
    [
        ("own", "running", 1, True),
        ("own", "created", 1, True),
        ("other", "running", 11, False),
        ("other", "paused", 11, False),
        ("other", "exited", 1, True),
        ("other", "dead", 1, True),
        ("other", "created", 1, False),
        ("other", "created", 11, True),
        (None, "exited", 11, False),
    ],
)
def test_containers_go_by_run_state_and_age(run: str | None, state: str, age: int, goes: bool) -> None:
    labels = {} if run is None else {LABEL_RUN: run}
    entry = {"Labels": labels, "State": state, "Created": MINUTES[age].timestamp()}
    assert container_goes(entry, "own", NOW) is goes


@pytest.mark.parametrize(
    ("run", "age", "goes"),
    [("own", 1, True), ("other", 1, False), ("other", 11, True), (None, 11, False)],
)
def test_unused_volumes_go_by_run_and_age(run: str | None, age: int, goes: bool) -> None:
    labels = None if run is None else {LABEL_RUN: run}
    entry = {"Labels": labels, "CreatedAt": MINUTES[age].strftime("%Y-%m-%dT%H:%M:%SZ")}
    assert volume_goes(entry, "own", NOW) is goes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T12:00:00Z", NOW),
        ("2026-01-01T14:00:00.123456789+02:00", NOW),
        ("yesterday", None),
        (None, None),
    ],
)
def test_the_engines_times_are_read(text: str | None, expected: datetime | None) -> None:
    assert engine_time(text) == expected
