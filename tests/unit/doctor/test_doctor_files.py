"""Disks, rights, gold answers."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from doctor_support import GIB, a_host, a_question

from runner.datasets import Dataset, Problem
from runner.doctor.files import Need, examine_disk, examine_writable, judge_disk, judge_writable, needs
from runner.doctor.gold import examine_gold, is_right, judge_gold
from runner.doctor.host import Host, Space
from runner.doctor.report import State

pytestmark = pytest.mark.anyio


def need(what: str, gib: float) -> Need:
    return Need(what, Path(f"/{what}"), int(gib * GIB))


def space(free_gib: float, device: int = 1) -> Space:
    return Space(int(free_gib * GIB), 1000 * GIB, device)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ([(need("results", 1), space(100))], State.OK),
        ([(need("results", 1), space(1.5))], State.WARNING),
        ([(need("results", 1), space(0.5))], State.FAILED),
        # Each alone would fit; they share a disk.
        ([(need("results", 6), space(10)), (need("models", 8), space(10))], State.FAILED),
        ([(need("results", 6), space(20, 1)), (need("models", 8), space(20, 2))], State.OK),
        ([(need("models", 0), space(0.01))], State.FAILED),
    ],
)
def test_disks_are_judged_by_all_that_goes_onto_them(found: list[tuple[Need, Space]], state: State) -> None:
    assert judge_disk(found).state is state


def test_a_checkpoint_that_is_not_here_needs_its_whole_size() -> None:
    wanted = {one.what: one.size_bytes for one in needs(a_question(), problems=130)}

    assert wanted["models"] == 2 * 4_205_751_296
    assert wanted["results"] > 520 * 100 * 1024


def test_what_is_here_of_a_checkpoint_needs_no_room(tmp_path: Path) -> None:
    question = a_question(models_dir=tmp_path)
    directory = tmp_path / "Qwen3.5-4B-MATH-ReAct-Agentic-ESOpt"
    directory.mkdir()
    for number, size in ((1, 5_000_000_000), (2, 3_411_502_592)):
        path = directory / f"model.safetensors-0000{number}-of-00002.safetensors"
        path.touch()
        os.truncate(path, size)

    assert {one.what: one.size_bytes for one in needs(question, 130)}["models"] == 0


def test_a_profile_that_fetches_nothing_needs_room_for_results_alone() -> None:
    assert [one.what for one in needs(a_question("demo"), 20)] == ["results"]


async def test_a_disk_that_cannot_be_looked_at_is_a_failure() -> None:
    def broken(_path: Path) -> Space:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    assert (await examine_disk(a_question(), a_host(space=broken), 130)).state is State.FAILED


async def test_a_directory_that_is_not_there_yet_is_looked_at_where_it_will_be(tmp_path: Path) -> None:
    looked: list[Path] = []

    def look(path: Path) -> Space:
        looked.append(path)
        return space(100)

    host = a_host(space=look, exists=Path.exists)
    await examine_disk(a_question("demo", results_dir=tmp_path / "a" / "b"), host, 20)

    assert looked == [tmp_path]


@pytest.mark.parametrize(
    ("problems", "needed", "state"),
    [
        ({"results": None, "models": None}, {"results", "models"}, State.OK),
        ({"results": "Permission denied", "models": None}, {"results"}, State.FAILED),
        ({"results": None, "models": "Read-only file system"}, {"results", "models"}, State.FAILED),
        ({"results": None, "models": "Read-only file system"}, {"results"}, State.OK),
    ],
)
def test_what_has_to_be_written_must_be_writable(
    problems: dict[str, str | None], needed: set[str], state: State
) -> None:
    found = [(what, Path(f"/{what}"), problem) for what, problem in problems.items()]

    assert judge_writable(found, 1000, needed=frozenset(needed)).state is state


async def test_writing_is_tried_and_leaves_nothing(tmp_path: Path) -> None:
    real = Host()
    host = a_host(try_write=real.try_write, exists=real.exists)

    found = await examine_writable(a_question("demo", results_dir=tmp_path / "results"), host)

    assert found.state is State.OK
    assert list(tmp_path.glob("*")) == []  # noqa: ASYNC240 - a test's own directory


async def test_a_file_in_the_place_of_the_results_is_a_failure(tmp_path: Path) -> None:
    real = Host()
    (tmp_path / "results").write_text("not a directory")
    host = a_host(try_write=real.try_write, exists=real.exists)

    found = await examine_writable(a_question("demo", results_dir=tmp_path / "results"), host)

    assert found.state is State.FAILED
    assert "Not a directory" in found.detail


# ── gold answers ─────────────────────────────────────────────────────────────────────────────────────────


def dataset(*answers: str) -> Dataset:
    problems = tuple(Problem(f"p{row}", row, "?", answer) for row, answer in enumerate(answers))
    return Dataset("mine", Path("mine.jsonl"), "0" * 64, 1, problems)


def test_gold_answers_that_the_scorer_takes_are_fine() -> None:
    found = judge_gold([dataset("34", "-1/2", "\\frac{1}{2}", "0.5", "{3}")], [])

    assert (found.state, found.detail) == (State.OK, "all 5 are graded right (mine 5)")


def test_a_gold_answer_that_can_never_score_is_named() -> None:
    assert not is_right("a}")

    found = judge_gold([dataset("1", "a}", "{b", "c}", "d}", "e}")], [])

    assert found.state is State.FAILED
    assert found.detail == "5 of 6 gold answers are not graded right: mine p1, mine p2, mine p3 and 2 more"


async def test_the_demo_s_gold_answers_are_graded() -> None:
    assert (await examine_gold(a_question("demo"))).detail == "all 20 are graded right (demo 20)"


async def test_data_sets_that_are_not_here_are_waited_for() -> None:
    assert (await examine_gold(a_question())).state is State.SKIPPED


async def test_a_data_set_with_another_hash_than_the_profile_s_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "dapo_test.jsonl").write_text('{"id": "1", "question": "?", "answer": "1"}\n')

    found = await examine_gold(a_question(data_dir=tmp_path))

    assert found.state is State.FAILED
    assert "is not the expected file" in found.detail


async def test_a_data_set_that_was_named_is_graded_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"id": "1", "question": "?", "answer": "1"}\n')

    found = await examine_gold(replace(a_question(), data={"dapo": path}))

    assert found.state is State.WARNING
    assert "dapo 1" in found.detail
    assert "not here yet: aime" in found.detail
