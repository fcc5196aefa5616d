"""The journal: one writer, whole lines, and every fault named by file and line."""

import errno
import fcntl
import json
import multiprocessing
import os
import threading
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import (
    began,
    disk_was_full,
    ended,
    retried,
    run_resumed,
    run_started,
    terminated,
    turn,
    unfinished,
)
from typing_extensions import override

from runner.errors import ExitCode, JournalWriteError, UserError
from runner.events import AnyEvent, Event, RunStarted, TurnDone
from runner.journal import JournalError, JournalWriter, NoRoomError, read_journal, read_state
from runner.resume import check_chain

ALL_KINDS: tuple[Event, ...] = (
    run_started("p0", "p1", overrides=("limit=1",), deviations=("a script",)),
    began(),
    turn(),
    retried(),
    began(attempt=2),
    turn(),
    terminated(),
    began("p1"),
    unfinished("p1"),
    disk_was_full(),
    ended(),
    run_resumed("p0", "p1"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *events: Event) -> list[Event]:
    with JournalWriter(path, clock=lambda: 12.5) as journal:
        return [journal.append(event) for event in events]


def test_events_of_every_kind_are_read_as_they_were_written(path: Path) -> None:
    written = write(path, *ALL_KINDS)

    assert list(read_journal(path)) == written
    assert {event.at for event in written} == {12.5}


@pytest.mark.parametrize(
    "text", ["\ud800", "\udc80\ud83d", "nul \x00 end", "\u2028\u2029\x85", "\x1b[31m", "é😀", "a\r\nb\nc"]
)
def test_a_model_s_text_survives(path: Path, text: str) -> None:
    action = {"name": "bash", "arguments": {"command": text, text: [text]}}
    (written,) = write(path, turn(text, observation=text, action=action, finish_reason=text, engine="e"))

    (read,) = read_journal(path)

    assert read == written
    assert isinstance(read, TurnDone)
    assert (read.assistant, read.observation, read.action) == (text, text, action)
    assert path.read_bytes().count(b"\n") == 1


def test_a_cause_with_half_a_surrogate_pair_survives(path: Path) -> None:
    written = write(path, retried(cause="server said \ud800"), unfinished(cause="server said \ud800"))

    assert list(read_journal(path)) == written


@given(text=st.text(st.characters(codec=None, exclude_categories=())))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "journal.jsonl"
    write(path, turn(text))

    (read,) = read_journal(path)

    assert isinstance(read, TurnDone)
    assert read.assistant == text


def test_values_that_only_python_s_json_knows_survive(path: Path) -> None:
    write(path, turn(action={"name": "bash", "arguments": {"command": float("inf"), "big": 10**4000}}))

    (read,) = read_journal(path)

    assert isinstance(read, TurnDone)
    assert read.action == {"name": "bash", "arguments": {"command": float("inf"), "big": 10**4000}}


def test_an_action_as_deep_as_the_protocol_decodes_survives(path: Path) -> None:
    deep: Any = 1
    for _ in range(880):
        deep = [deep]
    write(path, turn(action={"name": "bash", "arguments": {"command": deep}}))

    (read,) = read_journal(path)

    assert isinstance(read, TurnDone)
    assert read.action is not None
    assert str(read.action["arguments"]["command"]) == str(deep)


def test_a_second_writer_is_refused_while_the_first_writes(path: Path) -> None:
    with JournalWriter(path), pytest.raises(UserError, match="being written by another run") as raised:
        JournalWriter(path)

    assert str(path) in str(raised.value)
    write(path, ended())


def _hold(path: str, ready: Any, done: Any) -> None:
    with JournalWriter(Path(path)):
        ready.set()
        done.wait(20)


def test_the_lock_holds_between_processes_and_ends_with_its_process(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Event()
    child = spawn.Process(target=_hold, args=(str(path), ready, done))
    child.start()
    try:
        assert ready.wait(20)
        with pytest.raises(UserError, match="being written by another run"):
            JournalWriter(path)
    finally:
        child.kill()
        child.join()
        child.close()
    write(path, ended())


def test_a_torn_last_line_is_dropped(path: Path) -> None:
    written = write(path, *ALL_KINDS)
    whole = path.read_bytes()
    begin_of_last = whole[:-1].rindex(b"\n") + 1

    for cut in range(begin_of_last, len(whole)):
        path.write_bytes(whole[:cut])
        assert list(read_journal(path)) == written[:-1]


def test_a_journal_is_continued_behind_its_last_whole_line(path: Path) -> None:
    first = write(path, run_started(), began())
    with path.open("ab") as file:
        file.write(b'{"type":"turn","assist')

    second = write(path, terminated(), ended())

    assert list(read_journal(path)) == first + second


@pytest.mark.parametrize("torn", [b"{", b"x" * 200_000])
def test_a_journal_of_nothing_but_a_torn_line_is_begun_again(path: Path, torn: bytes) -> None:
    path.write_bytes(torn)

    written = write(path, run_started())

    assert list(read_journal(path)) == written


def damaged(path: Path, line: int, new: bytes) -> Path:
    write(path, *ALL_KINDS)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = new + b"\n"
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (b'{"type":"turn","assis', "damaged"),
        (b"", "damaged"),
        (b"\xff\xfe", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"[]", "no event"),
        (b'{"type":"invented"}', "invented"),
        (b'{"type":"run_ended","reason":"complete","extra":1}', "run_ended.extra"),
        (b'{"type":"run_ended","reason":"because"}', "run_ended.reason"),
        (b'{"type":"run_ended"}', "run_ended.reason"),
    ],
)
def test_a_damaged_line_in_the_middle_is_named(path: Path, new: bytes, message: str) -> None:
    damaged(path, 3, new)

    with pytest.raises(JournalError, match=message) as raised:
        list(read_journal(path))

    assert f"{path}:3: " in str(raised.value)


def test_a_journal_of_another_version_is_named(path: Path) -> None:
    later = json.loads(run_started().model_dump_json()) | {"version": 2}
    path.write_text(json.dumps(later) + "\n", encoding="utf-8")

    with pytest.raises(JournalError, match=r"journal\.jsonl:1: .*version"):
        list(read_journal(path))


def test_an_absent_journal_is_named(path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.jsonl: No such file"):
        list(read_journal(path))


def test_a_full_disk_is_said_once_and_nothing_is_written_behind_it() -> None:
    journal = JournalWriter(Path("/dev/full"))
    for _ in range(2):
        with pytest.raises(JournalWriteError, match="cannot write /dev/full: No space left"):
            journal.append(ended())
    journal.close()


class FullOnce(FileIO):
    """A disk that is full in the middle of the next line, and has room again after it."""

    def __init__(self, path: Path, code: int = errno.ENOSPC) -> None:
        super().__init__(path, "r+b")
        self.calls = 0
        self.code = code

    @override
    def write(self, data: Any) -> int:
        self.calls += 1
        if self.calls == 2:
            raise OSError(self.code, os.strerror(self.code))
        return super().write(data[:10]) if self.calls == 1 else super().write(data)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_journal_as_it_was_and_takes_the_line_once_there_is_room(
    path: Path, code: int
) -> None:
    with JournalWriter(path, clock=lambda: 12.5) as journal:
        before = [journal.append(run_started()), journal.append(began())]
        whole = path.read_bytes()
        journal._file.close()
        journal._file = FullOnce(path, code)
        with pytest.raises(NoRoomError, match=os.strerror(code)) as raised:
            journal.append(terminated())
        assert path.read_bytes() == whole
        after = journal.append(terminated())

    assert raised.value.exit_code is ExitCode.INFRASTRUCTURE
    assert list(read_journal(path)) == [*before, after]
    check_chain(path)


def test_behind_a_line_that_a_broken_disk_took_in_part_nothing_more_is_written(path: Path) -> None:
    with JournalWriter(path, clock=lambda: 12.5) as journal:
        before = [journal.append(run_started()), journal.append(began())]
        journal._file.close()
        journal._file = FullOnce(path, errno.EIO)
        for _ in range(2):
            with pytest.raises(JournalWriteError, match="Input/output error") as raised:
                journal.append(terminated())
            assert not isinstance(raised.value, NoRoomError)

    assert list(read_journal(path)) == before


class NeverShorter(FullOnce):
    """A disk that is full, and does not take back what it took."""

    @override
    def truncate(self, size: int | None = None) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_part_of_a_line_that_cannot_be_taken_back_ends_the_writing(path: Path) -> None:
    with JournalWriter(path, clock=lambda: 12.5) as journal:
        before = [journal.append(run_started())]
        journal._file.close()
        journal._file = NeverShorter(path)
        for _ in range(2):
            with pytest.raises(JournalWriteError, match="No space left") as raised:
                journal.append(began())
            assert not isinstance(raised.value, NoRoomError)

    assert list(read_journal(path)) == before


def test_a_sync_that_fails_ends_the_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with JournalWriter(path) as journal:
        journal.append(run_started())
        monkeypatch.setattr("runner.journal.os.fsync", fail)
        for _ in range(2):
            with pytest.raises(JournalWriteError) as raised:
                journal.append(terminated())
            assert not isinstance(raised.value, NoRoomError)


@pytest.mark.parametrize("torn", [b"torn", b"x" * 5000], ids=["short", "longer than what follows"])
def test_a_torn_line_stays_until_something_is_written_in_its_place(path: Path, torn: bytes) -> None:
    write(path, run_started(), began())
    whole = path.read_bytes()
    path.write_bytes(whole + torn)

    with JournalWriter(path) as journal:
        assert journal.torn_bytes == len(torn)
        assert path.read_bytes() == whole + torn
        journal.append(terminated())
        assert journal.torn_bytes == 0

    assert path.read_bytes().startswith(whole + b"{")
    assert path.read_bytes().endswith(b"}\n")
    check_chain(path)


def test_a_writer_waits_for_whoever_only_asks_whether_a_run_is_at_work(path: Path) -> None:
    write(path, run_started())
    with path.open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        timer = threading.Timer(0.08, fcntl.flock, (asking.fileno(), fcntl.LOCK_UN))
        timer.start()
        try:
            write(path, ended())
        finally:
            timer.join()

    assert len(list(read_journal(path))) == 2


@given(events=st.lists(st.sampled_from(ALL_KINDS), max_size=8), data=st.data())
def test_any_beginning_of_any_journal_is_readable_and_can_be_continued(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("prefix") / "journal.jsonl"
    written = write(path, *events)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])

    kept = whole[:cut].count(b"\n")
    assert list(read_journal(path)) == written[:kept]
    again = write(path, *ALL_KINDS)

    assert list(read_journal(path)) == written[:kept] + again
    check_chain(path)


class Short(FileIO):
    """A disk that takes a few bytes at a time."""

    @override
    def write(self, data: Any) -> int:
        return super().write(data[:7])


def test_a_line_that_is_taken_piece_by_piece_is_whole(path: Path) -> None:
    with JournalWriter(path, clock=lambda: 12.5) as journal:
        journal._file.close()
        journal._file = Short(path, "ab")
        written = [journal.append(run_started()), journal.append(ended())]

    assert list(read_journal(path)) == written


def test_a_directory_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(JournalWriteError, match=r"cannot write .*: No such file"):
        JournalWriter(tmp_path / "gone" / "journal.jsonl")


def test_the_journal_says_of_which_version_it_is(path: Path) -> None:
    write(path, run_started())

    (read,) = read_journal(path)

    assert isinstance(read, RunStarted)
    assert json.loads(path.read_bytes())["version"] == read.version == 1


def test_a_state_is_read_from_a_journal(path: Path) -> None:
    write(path, run_started(), began(), terminated())

    assert [one.terminated is not None for one in read_state(path).trajectories.values()] == [True]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (terminated("p0"), "terminated of set/p0:sample00, which never started"),
        (began("elsewhere"), "set/elsewhere:sample00 is no trajectory of this run"),
    ],
)
def test_an_event_that_cannot_stand_where_it_does_is_named_with_its_line(
    path: Path, event: AnyEvent, message: str
) -> None:
    write(path, run_started("p0", "p1"), began("p1"), event)

    with pytest.raises(JournalError) as raised:
        read_state(path)

    assert str(raised.value) == f"{path}:3: {message}"


def test_a_journal_of_a_run_that_never_started_is_named(path: Path) -> None:
    path.write_bytes(b"")

    with pytest.raises(JournalError, match=r"journal\.jsonl: the run never started"):
        read_state(path)


def test_what_must_survive_a_power_cut_is_synced_and_a_turn_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("runner.journal.os.fsync", synced.append)
    counts = []
    with JournalWriter(path) as journal:
        synced.clear()  # the directory, for the name of a new file
        for event in (run_started(), began(), turn(), retried(), terminated(), unfinished(), ended()):
            journal.append(event)
            counts.append(len(synced))
        journal.append(run_resumed())

    assert counts == [1, 1, 1, 1, 2, 3, 4]
    assert len(synced) == 5
