"""Figures stay as short as their columns are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.views import words


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "-"),
        (0, "0:00"),
        (59.9, "0:59"),
        (754, "12:34"),
        (3600, "1:00:00"),
        (360_000, "4d 4h"),
        (-3, "0:00"),
    ],
)
def test_durations(seconds: float | None, expected: str) -> None:
    assert words.duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, "-"), (0.0123, "12 ms"), (0.9999, "1.00 s"), (2.345, "2.35 s"), (20, "20 s")],
)
def test_latencies(seconds: float | None, expected: str) -> None:
    assert words.latency(seconds) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0, "0"),
        (999, "999"),
        (999.6, "1.0k"),
        (1234, "1.2k"),
        (99_960, "100k"),
        (1_500_000, "1.5M"),
    ],
)
def test_counts(value: float | None, expected: str) -> None:
    assert words.count(value) == expected


@given(st.integers(0, 10**14))
def test_a_count_is_short(value: int) -> None:
    assert len(words.count(value)) <= 5
