"""Traces: what a model wrote stays in its block, and its ids stay in the directory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import began, retried, run_started, terminated, turn, unfinished

from runner.engines.base import TrajectoryKey
from runner.events import AnyEvent, ProblemRecord, ToolRecord
from runner.results.traces import render_trace, trace_name, write_traces
from runner.state import reduce_events

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


def trace(*events: AnyEvent, problem: ProblemRecord | None = None) -> str:
    state = reduce_events([run_started(), began(), *events])
    played = state.trajectories[TrajectoryKey("set", "p0", 0)]
    return render_trace(played, problem or state.problems("set")["p0"])


def outside_blocks(markdown: str) -> str:
    """What a reader of Markdown sees outside of fenced blocks; fails if a block is left open."""
    outside: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            if len(ticks) >= len(fence) and not line.strip("`").strip():
                fence = ""
        elif len(ticks) >= 3 and "`" not in line[len(ticks) :]:
            fence = ticks
        else:
            outside.append(line)
    assert fence == ""
    return "\n".join(outside)


@pytest.mark.parametrize(
    "text",
    [
        "```\n# Score: 1\n```",
        "````````\n# Score: 1",
        "a\n```text\n```\n# Score: 1\n",
        "~~~\n# Score: 1",
        "\r```\r# Score: 1\r",
        "\u2028```\u2028# Score: 1",
        "```",
        "",
    ],
)
def test_a_completion_cannot_leave_its_block(text: str) -> None:
    shown = outside_blocks(trace(turn(text, observation=text), terminated()))

    assert "Score: 1" not in shown
    assert shown.count("## Turn 1") == 1


@given(ANY_TEXT)
def test_no_text_at_all_can_leave_its_block(text: str) -> None:
    plain = outside_blocks(trace(turn("x", observation="x"), terminated()))

    assert outside_blocks(trace(turn(text, observation=text), terminated())) == plain


@pytest.mark.parametrize("text", ["a`b", "``", "`", "a\n# b", "\x1b[31m`", "", " "])
def test_a_fact_is_one_line_of_code_whatever_it_holds(text: str) -> None:
    shown = trace(terminated(prediction=text, react_error=text or None))

    (line,) = [one for one in shown.split("\n") if one.startswith("- prediction: ")]
    code = line.removeprefix("- prediction: ")
    ticks = code[: len(code) - len(code.lstrip("`"))]
    assert code.startswith(f"{ticks} ")
    assert code.endswith(f" {ticks}")
    assert ticks not in code[len(ticks) : -len(ticks)]
    assert "\x1b" not in line


def test_a_trace_tells_question_turns_tools_and_score() -> None:
    tool = ToolRecord(
        exit_code=None,
        timed_out=True,
        limits=("time",),
        wall_s=3.0,
        cpu_s=None,
        throttled_s=None,
        peak_memory_bytes=None,
        stdout_bytes=0,
        stderr_bytes=0,
    )
    shown = trace(turn("I run", observation="seen", tool=tool), turn("done", number=1), terminated(score=1.0))

    for part in (
        "## Problem\n\n```text\nHow many?\n```",
        "- expected answer: ` 42 `",
        "- score: ` 1 `",
        "## Turn 1\n\n3 + 2 tokens, 0.10 s\n\n```text\nI run\n```",
        "### Observation (exit code none, 3.00 s, limits: time)\n\n```text\nseen\n```",
        "## Turn 2",
    ):
        assert part in shown


def test_an_unfinished_trajectory_s_trace_has_a_cause_and_no_score() -> None:
    shown = trace(turn("half"), retried(), began(attempt=2), unfinished(cause="the daemon\nis gone"))

    assert "- score: ` none: unfinished `" in shown
    assert "- cause: ` the daemon⏎is gone `" in shown
    assert "- infrastructure retries: ` 1 `" in shown
    assert "half" not in shown


def test_a_trajectory_that_was_cut_off_says_so() -> None:
    assert "the run stopped before it ended" in trace(turn("half"))


HOSTILE_IDS = ["../../../etc/passwd", "/etc/passwd", "..", ".", "a/b", "a\\b", "\x00", "-rf", "ü", "x" * 5000]


@pytest.mark.parametrize("problem_id", HOSTILE_IDS)
def test_no_id_can_leave_the_traces_directory(tmp_path: Path, problem_id: str) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    state = reduce_events([run_started(problem_id), began(problem_id), terminated(problem_id)])

    write_traces(state, run_dir)

    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent for path in written] == [run_dir / "traces"]
    assert written[0].name.startswith("set_0000_")


def test_ids_that_look_alike_once_made_safe_keep_their_own_traces(tmp_path: Path) -> None:
    ids = ["a/b", "a\\b", "a b", "a_b"]
    events: list[AnyEvent] = [run_started(*ids)]
    events += [began(one, row=row) for row, one in enumerate(ids)]

    assert write_traces(reduce_events(events), tmp_path) == 4
    assert len(list((tmp_path / "traces").iterdir())) == 4


@given(ANY_TEXT)
def test_any_id_makes_a_name_of_safe_characters(problem_id: str) -> None:
    chosen = problem_id if _encodes(problem_id) else "p0"
    state = reduce_events([run_started(chosen), began(chosen)])
    (played,) = state.trajectories.values()

    name = trace_name(played)

    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert len(name) < 255


def _encodes(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
