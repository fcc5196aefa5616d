"""`recount verify run`: a run agrees with its journal, and one changed byte is found and named."""

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from support.events import began, ended, run_started, terminated, turn
from support.final4_like import lost_now_and_then, plan_of, run_of

from runner.cli import main
from runner.events import Event
from runner.journal import JournalWriter, read_journal
from runner.results.bundle import check_bundle, write_bundle
from runner.results.check import check_run
from runner.run import write_results

JOURNAL, RESULTS, SUMMARY = "journal.jsonl", "evaluation_results.json", "summary.txt"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a verdict, unfinished trajectories and retries, in a directory that nobody changes."""
    directory = tmp_path_factory.mktemp("original")
    plan = plan_of(directory / "in", limit=3)
    return anyio.run(partial(run_of, directory, plan, lost_now_and_then)).run_dir


@pytest.fixture
def run_dir(original: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "somewhere" / "run"
    shutil.copytree(original, copy)
    return copy


class Verify:
    """The command, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: object) -> tuple[int, str]:
        self._monkeypatch.setattr(sys, "argv", ["recount", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = self._capsys.readouterr()
        return int(ended.value.code or 0), told.out + told.err


@pytest.fixture
def recount(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Verify:
    monkeypatch.chdir(tmp_path)
    return Verify(capsys, monkeypatch)


def differences(told: str) -> list[str]:
    return [line.removeprefix("DIFFERS").strip() for line in told.splitlines() if line.startswith("DIFFERS")]


def replace(path: Path, old: str, new: str, *, line: int | None = None) -> int:
    """Change the first `old` (in this line, from 1); return the number of the line."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    found = next(index for index, one in enumerate(lines) if old in one and line in {None, index + 1})
    lines[found] = lines[found].replace(old, new, 1)
    path.write_text("".join(lines), encoding="utf-8")
    return found + 1


def test_a_run_holds_wherever_it_lies(recount: Verify, run_dir: Path) -> None:
    code, told = recount("verify", "run", run_dir)

    assert (code, differences(told)) == (0, [])
    assert "the run holds" in told
    for name in (JOURNAL, RESULTS, SUMMARY, "traces", "trajectories"):
        assert f"ok         {name}: " in told
    assert "data set dapo is not where the profile says" in told


def test_a_recorded_data_set_line_that_was_changed_is_named_with_what_follows_from_it(
    recount: Verify, run_dir: Path
) -> None:
    replace(run_dir / JOURNAL, 'dapo_001?","answer":"42"', 'dapo_001?","answer":"41"')
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    found = differences(told)
    assert found[0].startswith(f"{JOURNAL}:1: the line is not the one that was written")
    assert f"{JOURNAL}: dapo/dapo_001:sample00: score is 1.0, its turns give 0.0" in found
    assert any(one.startswith(f"{RESULTS}: journal.sha256: is") for one in found)


def test_a_score_that_was_changed_is_named_by_line_trajectory_and_figure(
    recount: Verify, run_dir: Path
) -> None:
    line = replace(run_dir / JOURNAL, '"score":1.0', '"score":0.0')
    code, told = recount("verify", "run", run_dir)
    found = differences(told)

    assert code == 1
    assert f"{JOURNAL}:{line}: the line is not the one that was written behind the line before" in found
    assert any(re.search(r"sample0\d: score is 0\.0, its turns give 1\.0", one) for one in found)
    assert any(one.startswith(f"{RESULTS}: verdict.pooled.") for one in found)
    assert any(one.startswith(f"{RESULTS}: datasets.") and ".mean" in one for one in found)
    assert any(one.startswith(f"{SUMMARY}:") for one in found)
    assert any(one.startswith("traces/") for one in found)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:3] + lines[4:],
        lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
        lambda lines: lines[:4] + lines[3:],
    ],
    ids=["dropped", "moved", "doubled"],
)
def test_a_line_that_is_dropped_moved_or_doubled_is_named(
    run_dir: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    journal = run_dir / JOURNAL
    journal.write_bytes(b"".join(change(journal.read_bytes().splitlines(keepends=True))))

    places = [place for place, _ in check_run(run_dir).differences]
    assert {f"{JOURNAL}:4", f"{JOURNAL}:5"} & set(places)


def test_a_changed_result_is_named_by_its_key(recount: Verify, run_dir: Path) -> None:
    results = json.loads((run_dir / RESULTS).read_bytes())
    written = results["datasets"]["dapo"]["mean"]["value"]
    replace(run_dir / RESULTS, f'"value": {written}', '"value": 0.99')
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    assert differences(told) == [f"{RESULTS}: datasets.dapo.mean.value: is 0.99, the journal gives {written}"]


def test_a_word_of_the_verdict_that_was_changed_is_named(recount: Verify, run_dir: Path) -> None:
    written = json.loads((run_dir / RESULTS).read_bytes())["verdict"]["word_by_numbers"]
    replace(run_dir / RESULTS, f'"word_by_numbers": "{written}"', '"word_by_numbers": "differs"')
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    assert differences(told) == [
        f"{RESULTS}: verdict.word_by_numbers: is 'differs', the journal gives {written!r}"
    ]


def test_added_and_missing_keys_and_rows_are_named(run_dir: Path) -> None:
    path = run_dir / RESULTS
    results = json.loads(path.read_bytes())
    del results["engine"]
    results["surprise"] = 1
    results["datasets"]["dapo"]["trajectories"].pop()
    path.write_text(json.dumps(results), encoding="utf-8")

    found = dict(check_run(run_dir).differences)
    assert found[f"{RESULTS}: engine"].startswith("is not there")
    assert found[f"{RESULTS}: surprise"] == "is 1, the journal gives not there"
    assert found[f"{RESULTS}: datasets.dapo.trajectories"] == "is a list of 7, the journal gives a list of 8"


def test_a_changed_trace_is_named_by_file_and_line(recount: Verify, run_dir: Path) -> None:
    trace = next(one for one in sorted((run_dir / "traces").iterdir()) if "echo 42" in one.read_text())
    line = replace(trace, "echo 42", "echo 41")
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    assert differences(told) == [f"traces/{trace.name}:{line}: the line is not what the journal gives"]


def test_files_that_are_missing_or_too_many_are_named(recount: Verify, run_dir: Path) -> None:
    (run_dir / SUMMARY).unlink()
    gone, *_ = sorted((run_dir / "traces").iterdir())
    gone.unlink()
    (run_dir / "traces" / "more.md").write_text("x")
    (run_dir / RESULTS).unlink()
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    assert differences(told) == [
        f"{RESULTS}: is missing",
        f"{SUMMARY}: is missing",
        f"traces/{gone.name}: is missing",
        "traces/more.md: belongs to no trajectory of the journal",
    ]


@pytest.mark.parametrize("name", [JOURNAL, RESULTS, SUMMARY])
def test_any_byte_that_is_changed_is_found_and_its_file_is_named(run_dir: Path, name: str) -> None:
    path = run_dir / name
    whole = path.read_bytes()
    step = max(len(whole) // 23, 1)
    # Without its last byte a journal's last line is torn, which is another test's.
    for at in range(0, len(whole) - 1, step):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        report = check_run(run_dir)
        assert any(place.startswith(name) for place, _ in report.differences), at
    path.write_bytes(whole)
    assert check_run(run_dir).holds


def test_the_last_byte_of_a_journal_is_missed_by_what_was_derived_with_its_line(run_dir: Path) -> None:
    journal = run_dir / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-1] + b"x")

    report = check_run(run_dir)
    assert "the journal's last line is torn and counts as not written" in report.notes
    assert f"{RESULTS}: journal.events" in [place for place, _ in report.differences]


def test_a_damaged_journal_is_named_by_line_and_nothing_is_derived(recount: Verify, run_dir: Path) -> None:
    replace(run_dir / JOURNAL, '"type":"turn"', '"type":"tern"', line=None)
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    assert "Traceback" not in told
    assert any("no event of this journal version" in one for one in differences(told))


def test_a_journal_cut_short_is_found_by_what_was_derived_from_it(run_dir: Path) -> None:
    journal = run_dir / JOURNAL
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-3]))

    report = check_run(run_dir)
    assert f"{RESULTS}: journal.chain" in [place for place, _ in report.differences]
    assert any("the journal has no end" in one and "eval --resume" in one for one in report.notes)


def test_a_killed_run_whose_results_were_derived_holds_and_says_that_it_has_no_end(run_dir: Path) -> None:
    journal = run_dir / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    write_results(run_dir)

    report = check_run(run_dir)
    assert report.holds
    assert "the journal's last line is torn and counts as not written" in report.notes


def test_a_run_of_other_code_of_the_same_version_is_told_of(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("other code" in one for one in check_run(run_dir).notes)

    monkeypatch.setattr("runner.results.check.code_sha256", lambda: "f" * 64)
    report = check_run(run_dir)

    assert report.holds
    assert any("of other code of Recount" in one and "this is ffffffffffff" in one for one in report.notes)


def test_a_continued_journal_keeps_its_chain(run_dir: Path) -> None:
    journal = run_dir / JOURNAL
    events = list(read_journal(journal))
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]) + b'{"torn')
    with JournalWriter(journal) as writer:
        writer.append(events[-1])
    write_results(run_dir)

    assert check_run(run_dir).holds


def test_a_journal_of_an_earlier_version_has_no_chain_and_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, run_started(), began(), turn("x"), ended())
    journal = tmp_path / JOURNAL
    bare = re.sub(rb',"chain":"[0-9a-f]{64}"', b"", journal.read_bytes())
    journal.write_bytes(bare)
    write_results(tmp_path)

    report = check_run(tmp_path)
    assert any("carries no chain" in note for note in report.notes)
    assert not any(re.match(r"journal\.jsonl:\d", place) for place, _ in report.differences)


def write_run(directory: Path, *events: Event) -> None:
    with JournalWriter(directory / JOURNAL) as journal:
        for event in events:
            journal.append(event)
    write_results(directory)


def test_a_journal_that_does_not_follow_from_its_own_turns_is_named(tmp_path: Path) -> None:
    """As somebody would write it who writes the chain anew."""
    write_run(tmp_path, run_started(), began(), turn("Final answer: 41"), terminated(score=1.0), ended())

    found = dict(check_run(tmp_path).differences)
    said = found[f"{JOURNAL}: set/p0:sample00"]
    assert said
    assert any("score is 1.0, its turns give 0.0" in what for _, what in check_run(tmp_path).differences)
    assert any("seed is 7, its turns give 1" in what for _, what in check_run(tmp_path).differences)


def test_inputs_are_hashed_where_the_profile_names_them(
    recount: Verify, original: Path, run_dir: Path, tmp_path: Path
) -> None:
    inputs = original.parents[1] / "in"
    for name in ("dapo.jsonl", "aime.jsonl", "pack.json"):
        shutil.copy(inputs / name, tmp_path / name)
    assert recount("verify", "run", run_dir)[0] == 0

    replace(tmp_path / "dapo.jsonl", "How many, dapo_001?", "How many, dapo_O01?")
    code, told = recount("verify", "run", run_dir)

    assert code == 1
    assert "ok         data set aime: aime.jsonl SHA-256 " in told
    file, row = differences(told)
    assert "data set dapo: dapo.jsonl is another file" in file
    assert row == "data set dapo: row 1: is not dapo_001 as the run saw it"


def test_a_run_that_is_at_work_is_no_error(recount: Verify, run_dir: Path, tmp_path: Path) -> None:
    with JournalWriter(run_dir / JOURNAL):
        code, told = recount("verify", "run", run_dir)
        assert (code, "the run is at work" in told) == (0, True)
        code, told = recount("export", run_dir, "--format", "bundle")
        assert code == 2
        assert "is at work" in told


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_what_is_no_run_is_a_mistake(recount: Verify, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    code, told = recount("verify", "run", tmp_path / name)

    assert code == 2
    assert "remedy: name a run's directory" in " ".join(told.split())


def test_a_bundle_is_one_file_the_same_every_time_and_holds_elsewhere(
    recount: Verify, run_dir: Path, tmp_path: Path
) -> None:
    code, told = recount("export", run_dir, "--format", "bundle")
    first = run_dir.parent / "run.bundle.zip"
    again = tmp_path / "again.zip"
    assert (code, recount("export", run_dir, "--format", "bundle", "--out", again)[0]) == (0, 0)
    assert "SHA-256" in told
    assert first.read_bytes() == again.read_bytes()
    assert str(tmp_path).encode() not in b"".join(
        zipfile.ZipFile(again).read(name) for name in ("manifest.json", SUMMARY)
    )

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = shutil.move(first, elsewhere / "received.zip")
    shutil.rmtree(run_dir)
    code, told = recount("verify", "run", moved)
    assert (code, differences(told)) == (0, [])
    assert "ok         bundle: its files are those of its manifest" in told


def repacked(bundle: Path, change: Callable[[str, bytes], bytes], out: Path) -> Path:
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return out


@pytest.mark.parametrize("changed", [JOURNAL, RESULTS, SUMMARY])
def test_a_file_of_a_bundle_that_was_changed_is_named(
    recount: Verify, run_dir: Path, tmp_path: Path, changed: str
) -> None:
    write_bundle(run_dir, tmp_path / "a.zip")

    def change(name: str, content: bytes) -> bytes:
        return content.replace(b"run", b"ran", 1) if name == changed else content

    code, told = recount("verify", "run", repacked(tmp_path / "a.zip", change, tmp_path / "b.zip"))

    assert code == 1
    assert differences(told)[0].startswith(f"bundle: {changed}: SHA-256")
    assert any(one.startswith(changed) for one in differences(told))


def test_a_byte_of_a_bundle_that_was_changed_is_found(run_dir: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "a.zip"
    write_bundle(run_dir, bundle)
    whole = bundle.read_bytes()
    content = whole.index(b"journal.jsonl") + 200
    for at in (0, content, len(whole) // 2, len(whole) - 10):
        bundle.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        assert not check_bundle(bundle).holds, at
    bundle.write_bytes(whole[: len(whole) // 2])
    assert next(place for place, _ in check_bundle(bundle).differences) == "bundle"


def test_a_hostile_bundle_writes_nothing_outside_and_names_what_does_not_belong(
    recount: Verify, run_dir: Path, tmp_path: Path
) -> None:
    write_bundle(run_dir, tmp_path / "a.zip")
    hostile = tmp_path / "b.zip"
    shutil.copy(tmp_path / "a.zip", hostile)
    with zipfile.ZipFile(hostile, "a") as archive:
        archive.writestr("../escaped", "x")
        archive.writestr("traces/\x1b[2J.md", "x")
    code, told = recount("verify", "run", hostile)

    assert code == 1
    assert [one.rpartition(": ")[2] for one in differences(told)] == [
        "is nothing that belongs into a bundle"
    ] * 2
    assert "\x1b" not in told
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04nothing", b"x" * 1000])
def test_a_file_that_is_no_bundle_is_said_to_be_damaged(
    recount: Verify, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "b.zip").write_bytes(content)
    code, told = recount("verify", "run", tmp_path / "b.zip")

    assert code == 1
    assert differences(told)[0].startswith("bundle: is damaged")


def test_a_run_without_results_is_not_exported(recount: Verify, run_dir: Path) -> None:
    (run_dir / RESULTS).unlink()
    code, told = recount("export", run_dir, "--format", "bundle")

    assert code == 2
    assert f"has no {RESULTS}" in told
