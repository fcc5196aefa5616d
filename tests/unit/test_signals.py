"""A run that is told to stop: once in order, twice at once."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from support.builders import write_scripted_profile

from runner.events import EndReason, RunEnded, Terminated
from runner.journal import read_journal
from runner.run import write_results
from runner.signals import Stop

CHILD = Path(__file__).resolve().parents[1] / "support" / "slow_run.py"
ROOT = CHILD.parents[2]
PROMPTLY_S = 10.0
PROBLEMS = 6


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return write_scripted_profile(tmp_path, [f"p{number}" for number in range(PROBLEMS)])


@contextmanager
def running(profile: Path, latency_s: float, *how: str) -> Iterator[subprocess.Popen[str]]:
    """A run under way, ended at the latest here."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(profile), str(profile.parent / "results"), str(latency_s), *how],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def wait_for(child: subprocess.Popen[str], word: str, times: int = 1) -> None:
    assert child.stdout is not None
    for _ in range(times):
        assert child.stdout.readline() == f"{word}\n"


def events_of(profile: Path) -> list[object]:
    return list(read_journal(profile.parent / "results" / "run" / "journal.jsonl"))


def test_a_run_that_nobody_stops_ends_complete(profile: Path) -> None:
    with running(profile, 0.0) as child:
        _, errors = child.communicate(timeout=60)

    assert (child.returncode, errors) == (0, "")


@contextmanager
def handled_by(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_ends_soon_in_order_and_with_results(profile: Path, stop: signal.Signals) -> None:
    # A child inherits what is ignored, and these tests may be run under nohup.
    with handled_by(signal.SIGHUP, signal.SIG_DFL), running(profile, 0.1) as child:
        wait_for(child, "turn", times=7)
        child.send_signal(stop)
        started = time.monotonic()
        _, errors = child.communicate(timeout=PROMPTLY_S)

    assert time.monotonic() - started < PROMPTLY_S
    assert (child.returncode, errors) == (130, "")
    *_, last = events_of(profile)
    assert isinstance(last, RunEnded)
    assert (last.reason, last.message) == (EndReason.INTERRUPTED, stop.name)
    results = json.loads((profile.parent / "results" / "run" / "evaluation_results.json").read_bytes())
    done = sum(isinstance(event, Terminated) for event in events_of(profile))
    found = results["datasets"]["set"]
    assert results["end"] == "interrupted"
    assert 1 <= len(found["trajectories"]) == done < PROBLEMS
    assert all(one["cause"] == "the run stopped before it ended" for one in found["unfinished"])
    assert (profile.parent / "results" / "run" / "summary.txt").exists()


def test_a_second_signal_ends_the_process_where_it_stands(profile: Path) -> None:
    with running(profile, 0.05, "stubborn") as child:
        wait_for(child, "turn")
        child.send_signal(signal.SIGINT)
        line = "turn\n"
        while line == "turn\n":
            assert child.stdout is not None
            line = child.stdout.readline()
        assert line == "closing\n"
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=PROMPTLY_S)

    assert child.returncode == 130
    *_, last = events_of(profile)
    assert isinstance(last, RunEnded)
    assert write_results(profile.parent / "results" / "run").reason is EndReason.INTERRUPTED


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_before_it_began_leaves_nothing(profile: Path, stop: signal.Signals) -> None:
    with running(profile, 0.0, "late") as child:
        wait_for(child, "starting")
        child.send_signal(stop)
        _, errors = child.communicate(timeout=PROMPTLY_S)

    assert (child.returncode, errors) == (130, "stopped by a signal before the run began\n")
    assert not (profile.parent / "results").exists()


def test_a_hang_up_that_is_ignored_as_nohup_does_stops_nothing(profile: Path) -> None:
    with handled_by(signal.SIGHUP, signal.SIG_IGN), running(profile, 0.05) as child:
        wait_for(child, "turn")
        child.send_signal(signal.SIGHUP)
        child.communicate(timeout=60)

    assert child.returncode == 0


def test_a_killed_run_s_journal_gives_the_results_of_what_was_done(profile: Path) -> None:
    with running(profile, 0.05) as child:
        wait_for(child, "turn", times=8)
        child.kill()
        child.communicate(timeout=PROMPTLY_S)

    outcome = write_results(profile.parent / "results" / "run")

    assert outcome.results["end"] is None
    assert len(outcome.results["datasets"]["set"]["trajectories"]) >= 1
    assert outcome.reason is EndReason.INCOMPLETE


@pytest.mark.anyio
async def test_what_would_begin_behind_a_signal_does_not() -> None:
    stop = Stop()
    began = False
    stop.stop("SIGINT")

    with stop.guard():
        await anyio.lowlevel.checkpoint()
        began = True

    assert not began
