"""The small parts of a fetch: record, meter, settings, lines, memory."""

import json
import os
from pathlib import Path

import pytest
from rich.console import Console
from support.artifact_files import safetensors
from support.artifact_site import Watcher

from runner.artifacts.errors import in_words
from runner.artifacts.load import available_bytes, check_memory
from runner.artifacts.progress import FileDone, FileProgress, Meter, Phase
from runner.artifacts.record import RECORD_NAME, HashRecord
from runner.artifacts.settings import FetchSettings
from runner.cli.fetch_views import LineListener, fetch_listener
from runner.errors import UserError


def test_a_hash_is_believed_as_long_as_the_file_is_the_same_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one", encoding="utf-8")
    HashRecord(tmp_path).remember("file", "aa")
    record = HashRecord(tmp_path)

    assert record.known("file") == "aa"
    os.utime(file, ns=(1, 1))
    assert record.known("file") is None
    assert record.recorded("file") == "aa"


def test_a_file_put_in_another_s_place_is_another_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one", encoding="utf-8")
    record = HashRecord(tmp_path)
    record.remember("file", "aa")
    times = file.stat()
    other = tmp_path / "other"
    other.write_text("two", encoding="utf-8")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)

    assert record.known("file") is None


def test_marks_outlive_the_process_and_can_be_taken_away(tmp_path: Path) -> None:
    HashRecord(tmp_path).mark("file", "because")
    assert HashRecord(tmp_path).unverified == {"file": "because"}
    HashRecord(tmp_path).mark("file", None)
    assert HashRecord(tmp_path).unverified == {}


@pytest.mark.parametrize("content", ["", "[]", '{"files": 1}', "\x00"])
def test_a_broken_record_is_no_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / RECORD_NAME).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="cannot be read"):
        HashRecord(tmp_path)


def test_a_record_of_a_later_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text(json.dumps({"unverified": {"a": "b"}, "more": 1}), encoding="utf-8")
    assert HashRecord(tmp_path).unverified == {"a": "b"}


def test_speed_and_time_left_follow_from_bytes_and_clock() -> None:
    now = [0.0]
    watcher = Watcher()
    meter = Meter(watcher, "f", Phase.FETCHING, 1000, done_bytes=400, clock=lambda: now[0])
    now[0] = 1.0
    meter.advance(100)

    assert watcher.seen[-1] == FileProgress("f", Phase.FETCHING, 500, 1000, 100.0, 5.0)


def test_bytes_that_were_there_before_are_no_speed() -> None:
    now = [0.0]
    watcher = Watcher()
    meter = Meter(watcher, "f", Phase.FETCHING, None, clock=lambda: now[0])
    meter.restart(900, 1000)

    assert watcher.seen[-1] == FileProgress("f", Phase.FETCHING, 900, 1000, None, None)


def test_a_file_of_unknown_size_has_no_time_left() -> None:
    now = [0.0]
    watcher = Watcher()
    meter = Meter(watcher, "f", Phase.FETCHING, None, clock=lambda: now[0])
    now[0] = 2.0
    meter.advance(10)

    assert watcher.seen[-1].bytes_per_s == 5.0
    assert watcher.seen[-1].left_s is None


def test_lines_come_now_and_then_and_not_with_every_block() -> None:
    now = [0.0]
    lines: list[str] = []
    listener = LineListener(lines.append, clock=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        done = (second + 1) * 2**20
        listener.progress(FileProgress("a/f", Phase.FETCHING, done, 100 * 2**20, 2.0**20, 99.0 - second))

    assert lines == [
        "fetching a/f: 11 % of 100.0 MiB, 1.0 MiB/s, 89 s left",
        "fetching a/f: 21 % of 100.0 MiB, 1.0 MiB/s, 79 s left",
    ]


def test_names_from_a_server_cannot_act_on_the_terminal() -> None:
    lines: list[str] = []
    listener = LineListener(lines.append)
    listener.note("a\x1b[2Jb\nc")
    listener.done(FileDone("x\x1b]0;t\x07", "00", 1, "fetched", pinned=False))

    assert not [one for one in lines if "\x1b" in one or "\n" in one or "\x07" in one]


def test_a_terminal_gets_bars_with_speed_and_time_left(tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("w", encoding="utf-8") as file:
        console = Console(file=file, force_terminal=True, width=160, color_system=None)
        with fetch_listener(console, console.print) as listener:
            for done in (1, 2):
                listener.progress(FileProgress("a/weights", Phase.HASHING, done * 2**20, 4 * 2**20, 1.0, 2.0))
            listener.done(FileDone("a/weights", "00" * 32, 4 * 2**20, "fetched", pinned=True))
    shown = (tmp_path / "terminal").read_text(encoding="utf-8")

    assert "hashing" in shown
    assert "1 B/s, 2 s left" in shown
    assert f"a/weights: fetched, 4.0 MiB, SHA-256 {'00' * 32}" in shown


def test_variables_of_the_hub_s_own_tools_are_honoured(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" hf_file \n", encoding="utf-8")
    home = {"HF_HOME": str(tmp_path)}

    assert FetchSettings.from_environment(home).token == "hf_file"
    assert FetchSettings.from_environment(home | {"HF_TOKEN": "hf_set"}).token == "hf_set"
    assert FetchSettings.from_environment(home).hub_cache == tmp_path / "hub"
    assert FetchSettings.from_environment(home | {"HF_ENDPOINT": "http://m/"}).hub == "http://m"
    assert FetchSettings.from_environment(home | {"HF_HUB_OFFLINE": "1"}).offline
    assert not FetchSettings.from_environment(home | {"HF_HUB_OFFLINE": "0"}).offline


@pytest.mark.parametrize("value", ["no", "-1", "nan", "inf"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(UserError, match="RECOUNT_FETCH_WAIT_S"):
        FetchSettings.from_environment({"RECOUNT_FETCH_WAIT_S": value})


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB"), (2**42, "4.0 TiB")],
)
def test_bytes_are_printed_for_people(count: int, words: str) -> None:
    assert in_words(count) == words


def test_memory_is_read_from_the_system_and_missing_facts_are_none(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable: 4 kB\n", encoding="ascii")

    assert available_bytes(meminfo) == 4096
    assert available_bytes(tmp_path / "none") is None or available_bytes(tmp_path / "none") > 4096


def test_what_fits_may_be_loaded_and_what_is_unknown_too(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(safetensors({"a": (10,)}))

    check_memory(tmp_path, available=2**31)
    check_memory(tmp_path, available=None)
    with pytest.raises(UserError, match=r"takes about 1\.0 GiB of memory"):
        check_memory(tmp_path, available=2**20)


def test_a_directory_without_weights_has_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no \*\.safetensors"):
        check_memory(tmp_path, available=None)
