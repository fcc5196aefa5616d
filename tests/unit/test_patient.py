"""A full disk: the run stands still and says so, goes on when there is room, or ends cleanly."""

import errno
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.builders import answer, bash, write_profile
from support.events import began, ended, run_started, terminated, turn
from support.fake_engine import FakeEngine
from support.stopping import comparable, go_on, start

from runner.engines.base import GenerationRequest
from runner.errors import ExitCode, JournalWriteError
from runner.events import DiskWasFull, EndReason, Event
from runner.journal import JOURNAL_NAME, JournalWriter, read_journal
from runner.patient import Patience, PatientJournal
from runner.plan import Plan, make_plan
from runner.results.check import check_run
from runner.signals import Stop

pytestmark = pytest.mark.anyio
UNUSED_ENGINE = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}


class Disk:
    """A disk that the test fills and empties; stands between a writer and its file."""

    def __init__(self, journal: JournalWriter) -> None:
        self.is_full = False
        self.refused = 0
        self._file = journal._file
        self._write = journal._file.write
        journal._file = self  # type: ignore[assignment]

    def write(self, data: Any) -> int:
        if not self.is_full:
            return self._write(data)
        self.refused += 1
        if len(data) > 20:
            return self._write(data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalWriter]:
    with JournalWriter(tmp_path / JOURNAL_NAME, clock=lambda: 12.5) as writer:
        yield writer


def full(journal: JournalWriter) -> Disk:
    disk = Disk(journal)
    disk.is_full = True
    return disk


class TakesNothing(Disk):
    """A full disk that refuses from the first byte."""

    def write(self, data: Any) -> int:
        if self.is_full:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return super().write(data)


async def test_events_wait_in_order_and_are_told_when_they_are_written(journal: JournalWriter) -> None:
    seen: list[Event] = []
    told: list[str] = []
    disk = TakesNothing(journal)
    patient = PatientJournal(journal, seen.append, patience=Patience(retry_s=0.01, tell=told.append))
    with anyio.fail_after(20):
        async with patient.open():
            patient.emit(run_started())
            disk.is_full = True
            patient.emit(began())
            patient.emit(turn())
            await anyio.sleep(0.05)
            assert [event.type for event in seen] == ["run_started"]  # type: ignore[attr-defined]
            disk.is_full = False
            await patient.room()
            patient.emit(terminated())

    read = list(read_journal(journal.path))
    assert [event.type for event in read] == [
        *("run_started", "trajectory_started", "turn", "disk_was_full", "terminated")
    ]
    assert read == seen
    assert isinstance(read[3], DiskWasFull)
    assert (read[3].events, read[3].waited_s >= 0.05) == (2, True)
    assert "Disk quota exceeded" in told[0]
    assert "no turn begins until there is room" in told[0]
    assert "room again" in told[1]
    assert len(told) == 2


async def test_no_permit_is_given_while_the_disk_is_full(journal: JournalWriter) -> None:
    disk = TakesNothing(journal)
    patient = PatientJournal(journal, lambda _: None, patience=Patience(retry_s=0.01))
    permit = patient.gated(anyio.Semaphore(1))
    order: list[str] = []

    async def take() -> None:
        async with permit:
            order.append("turn")

    with anyio.fail_after(20):
        async with patient.open():
            disk.is_full = True
            patient.emit(run_started())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take)
                await anyio.sleep(0.05)
                order.append("room")
                disk.is_full = False

    assert order == ["room", "turn"]


async def test_a_disk_that_stays_full_is_waited_for_only_so_long(journal: JournalWriter) -> None:
    full(journal)
    patient = PatientJournal(journal, lambda _: None, patience=Patience(retry_s=0.01, give_up_s=0.05))

    async def wait_for_ever() -> None:
        async with patient.open():
            patient.emit(run_started())
            patient.emit(began())
            await anyio.sleep_forever()

    with pytest.raises(JournalWriteError, match="the newest 2 events are lost") as raised:
        await wait_for_ever()

    assert raised.value.exit_code is ExitCode.INFRASTRUCTURE
    assert "eval --resume" in (raised.value.remedy or "")
    assert journal.path.read_bytes() == b""


async def test_a_run_that_is_being_stopped_looks_for_room_once(journal: JournalWriter) -> None:
    full(journal)
    patient = PatientJournal(
        journal, lambda _: None, patience=Patience(retry_s=0.01, give_up_s=1000), hurried=lambda: True
    )

    with anyio.fail_after(20), pytest.raises(JournalWriteError, match="events are lost"):
        async with patient.open():
            patient.emit(run_started())


async def test_a_disk_that_fills_again_at_once_is_waited_for_again(journal: JournalWriter) -> None:
    class RoomForOne(Disk):
        """Takes one line, then is full again for a while."""

        def write(self, data: Any) -> int:
            self.refused += 1
            if self.refused % 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._write(data)

    RoomForOne(journal)
    patient = PatientJournal(journal, lambda _: None, patience=Patience(retry_s=0.001))
    with anyio.fail_after(20):
        async with patient.open():
            for event in (run_started(), began(), turn(), terminated(), ended()):
                patient.emit(event)

    kinds = [event.type for event in read_journal(journal.path)]
    assert [one for one in kinds if one != "disk_was_full"] == [
        *("run_started", "trajectory_started", "turn", "terminated", "run_ended")
    ]
    assert "disk_was_full" in kinds


async def test_another_fault_of_the_disk_ends_the_run_at_once(journal: JournalWriter) -> None:
    class Broken(Disk):
        """A disk that can no longer be written."""

        def write(self, data: Any) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    Broken(journal)
    patient = PatientJournal(journal, lambda _: None)

    with pytest.raises(JournalWriteError, match="Input/output error"):
        patient.emit(run_started())


def solve(request: GenerationRequest) -> str:
    return bash("echo 42") if request.turn == 0 else answer("42")


def plan_for(tmp_path: Path, problems: int = 4) -> Plan:
    ids = {f"p{number}": "42" for number in range(problems)}
    profile = write_profile(
        tmp_path / "in", UNUSED_ENGINE, problems=ids, extra="[concurrency]\ntrajectories = 2\n"
    )
    return make_plan(str(profile))


SMALL_BYTES = 512 << 10
PAGE_BYTES = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of half a MiB, below the results directory of `start`."""
    place = tmp_path / "results"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Take all room that is left, but for what the last page of a file still holds."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * PAGE_BYTES):
            pass
    return filler


def fills(place: Path) -> Callable[[GenerationRequest], str]:
    """Return an engine's turns: one of them is long, and the disk is full before it is written."""

    def say(request: GenerationRequest) -> str:
        if request.key.problem_id == "p1" and request.turn == 1:
            fill(place)
            return "x" * PAGE_BYTES * 2 + answer("42")
        return solve(request)

    return say


async def test_a_run_on_a_disk_that_is_really_full_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    plan = plan_for(tmp_path)
    told: list[str] = []
    is_full = anyio.Event()
    asked_when_told: list[int] = []
    engine = FakeEngine(fills(small_disk))

    def tell(text: str) -> None:
        told.append(text)
        is_full.set()
        asked_when_told.append(len(engine.requests))

    async def make_room() -> None:
        await is_full.wait()
        await anyio.sleep(0.3)
        (small_disk / "filler").unlink()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make_room)
        outcome = await start(tmp_path, plan, engine, patience=Patience(retry_s=0.05, tell=tell))

    assert "No space left" in told[0]
    assert "room again" in told[1]
    assert (outcome.reason, outcome.exit_code) == (EndReason.COMPLETE, ExitCode.OK)
    assert outcome.results["timings"]["disk_full_s"] >= 0.2
    # Two are in flight: the turn of the other one was under way, and no further one began.
    assert asked_when_told[1] - asked_when_told[0] <= 1
    assert check_run(outcome.run_dir).differences == []


async def test_a_run_whose_disk_stays_full_ends_with_all_that_was_done_and_can_go_on(
    tmp_path: Path, small_disk: Path
) -> None:
    plan = plan_for(tmp_path)
    whole = await start(tmp_path / "elsewhere", plan, FakeEngine(solve))
    engine = FakeEngine(fills(small_disk))

    with pytest.raises(JournalWriteError, match="No space left on device, for 0 s") as raised:
        await start(tmp_path, plan, engine, patience=Patience(retry_s=0.05, give_up_s=0.2))

    assert raised.value.exit_code is ExitCode.INFRASTRUCTURE
    run_dir = small_disk / "run"
    kept = list(read_journal(run_dir / JOURNAL_NAME))
    assert [path.name for path in run_dir.iterdir()] == [JOURNAL_NAME]
    assert [event.type for event in kept].count("terminated") >= 1

    (small_disk / "filler").unlink()
    outcome = await go_on(run_dir, plan, FakeEngine(solve))

    assert list(read_journal(run_dir / JOURNAL_NAME))[: len(kept)] == kept
    assert comparable(outcome.results) == comparable(whole.results)
    assert check_run(run_dir).differences == []


async def test_a_run_that_is_stopped_on_a_full_disk_ends_at_once_and_can_go_on(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(tmp_path)
    stop = Stop()

    @asynccontextmanager
    async def watched() -> AsyncIterator[Stop]:
        yield stop

    monkeypatch.setattr("runner.run.watch_signals", watched)
    patience = Patience(retry_s=0.05, give_up_s=1000, tell=lambda _: stop.stop("SIGTERM"))

    with pytest.raises(JournalWriteError, match="events are lost"):
        await start(tmp_path, plan, FakeEngine(fills(small_disk)), patience=patience)

    (small_disk / "filler").unlink()
    stop = Stop()
    outcome = await go_on(small_disk / "run", plan, FakeEngine(solve))
    assert outcome.exit_code is ExitCode.OK


async def test_results_that_find_no_room_are_left_as_they_were_and_written_by_a_resume(
    tmp_path: Path, small_disk: Path
) -> None:
    plan = plan_for(tmp_path)

    def fill_at_the_end(event: Event) -> None:
        if event.type == "run_ended":  # type: ignore[attr-defined]
            fill(small_disk)

    with pytest.raises(Exception, match=r"cannot (write|create) .*No space left") as raised:
        await start(tmp_path, plan, FakeEngine(solve), listener=fill_at_the_end)

    assert getattr(raised.value, "exit_code", None) is ExitCode.INFRASTRUCTURE
    run_dir = small_disk / "run"
    assert not (run_dir / "evaluation_results.json").exists()
    assert not list(run_dir.glob(".*"))

    (small_disk / "filler").unlink()
    outcome = await go_on(run_dir, plan, FakeEngine(solve))
    assert (outcome.reason, outcome.results["complete"]) == (EndReason.COMPLETE, True)
    assert check_run(run_dir).differences == []


async def test_what_waits_in_memory_is_bounded(
    journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.patient.MOST_KEPT", 10)
    full(journal)
    patient = PatientJournal(journal, lambda _: None)
    emit = partial(patient.emit, began())

    for _ in range(10):
        emit()
    with pytest.raises(JournalWriteError, match="10 events wait"):
        emit()
