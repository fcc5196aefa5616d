"""Graders in their own processes: one that hangs, dies or runs out of memory costs its own answer alone."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from runner.errors import InfrastructureError, UserError
from runner.rescore.grader import Grader, grade_all
from runner.rescore.model import Failure, GradeLimits
from runner.rescore.scorers import Pair

pytestmark = pytest.mark.anyio
LIMITS = GradeLimits(wall_s=1.0, memory_bytes=1 << 30, start_s=30.0)

FAKE = """
import json, os, signal, subprocess, sys, time
def say(told): print(json.dumps(told), flush=True)
say({"ready": {"fake": "1"}})
for line in sys.stdin:
    asked = json.loads(line)
    answer = asked["answer"]
    if answer == "hang": time.sleep(600)
    if answer.startswith("child"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(answer.partition(" ")[2], "w").write(str(child.pid))
        time.sleep(600)
    if answer == "die": os._exit(3)
    if answer == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if answer == "noise": print("Warning: so it goes", flush=True); continue
    if answer == "flood": print("x" * 200000, flush=True); continue
    if answer == "memory": say({"failure": "memory"}); continue
    say({"score": float(answer == asked["gold"]), "method": "fake", "read_answer": answer[:9]})
"""


def command(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


async def graded(*pairs: Pair, script: str = FAKE, graders: int = 1) -> dict[Pair, tuple[object, object]]:
    grades, _ = await grade_all(pairs, LIMITS, command(script), graders=graders)
    return {pair: (grade.score, grade.failure) for pair, grade in grades.items()}


async def test_a_grader_that_hangs_is_an_error_and_the_next_answer_is_graded() -> None:
    found = await graded(("hang", "1"), ("1", "1"), ("2", "1"))

    assert found == {
        ("hang", "1"): (None, Failure.TIMEOUT),
        ("1", "1"): (1.0, None),
        ("2", "1"): (0.0, None),
    }


@pytest.mark.parametrize("answer", ["die", "killed", "noise", "flood"])
async def test_a_grader_that_dies_or_talks_nonsense_is_an_error_and_no_zero(answer: str) -> None:
    found = await graded((answer, "1"), ("1", "1"))

    assert found == {(answer, "1"): (None, Failure.CRASH), ("1", "1"): (1.0, None)}


async def test_how_a_grader_died_is_told() -> None:
    grades, _ = await grade_all([("killed", "1")], LIMITS, command(FAKE))

    assert grades["killed", "1"].detail == "the grader was killed by signal 9"


async def test_want_of_memory_is_an_error_of_its_own_kind() -> None:
    assert await graded(("memory", "1"), ("1", "1")) == {
        ("memory", "1"): (None, Failure.MEMORY),
        ("1", "1"): (1.0, None),
    }


async def test_what_a_hanging_grader_had_started_is_ended_with_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    await graded((f"child {told}", "1"))

    with anyio.fail_after(30):  # a killed process is there until the kernel is done with it
        while lives(told):  # noqa: ASYNC110 - no event tells of another process
            await anyio.sleep(0.02)


def lives(told: Path) -> bool:
    """Whether the process whose id is in a file is there, and no zombie that nobody has waited for yet."""
    state = Path(f"/proc/{int(told.read_text())}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_hostile_text_arrives_as_it_was_written() -> None:
    texts = ["\x00", "\ud800", "a\nb\r\u2028", '"}{', "x" * 1_000_000]

    assert await graded(*((one, one) for one in texts)) == {(one, one): (1.0, None) for one in texts}


async def test_equal_pairs_are_graded_once_by_several_graders_and_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    pairs = [("1", "1"), ("2", "1")] * 20
    grades, versions = await grade_all(
        pairs, LIMITS, command(FAKE), graders=2, progress=lambda done, of: seen.append((done, of))
    )

    assert set(grades) == {("1", "1"), ("2", "1")}
    assert seen == [(1, 2), (2, 2)]
    assert versions == {"fake": "1"}


async def test_a_grader_without_its_library_is_bad_input_with_a_remedy() -> None:
    missing = 'import json; print(json.dumps({"missing": "No module named x"}), flush=True)'
    with pytest.raises(UserError, match="not installed") as raised:
        await graded(("1", "1"), script=missing)

    assert raised.value.remedy is not None


@pytest.mark.parametrize("script", ["raise SystemExit(1)", "print('hello')"])
async def test_a_grader_that_does_not_start_is_our_failure(script: str) -> None:
    with pytest.raises(InfrastructureError, match="did not start"):
        await graded(("1", "1"), script=script)


async def test_a_closed_grader_s_process_is_gone() -> None:
    grader = Grader(LIMITS, command(FAKE))
    await grader.start()
    pid = grader._process.pid if grader._process is not None else 0
    await grader.close()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
