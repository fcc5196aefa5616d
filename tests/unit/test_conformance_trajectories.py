"""Replaying recorded trajectories: what differs is counted, whatever it is, and never ends the check."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.builders import PACK, answer, bash, write_lines
from support.fake_sandbox import FakeSandbox, result

from runner.conformance.report import Report
from runner.conformance.trajectories import check_trajectories
from runner.errors import UserError

pytestmark = pytest.mark.anyio
OPTIONS = {
    "max_turns": 4,
    "max_model_len": 4000,
    "max_tokens": 500,
    "tool_timeout": 1.0,
    "observation_limit": 60,
}


def case(name: str, *completions: str | None, expected: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A recorded trajectory; `expected` may hold a part of the record, which is what is compared."""
    return {
        "name": name,
        "task": {"id": f"case_{name}", "question": "How many?", "answer": "42", "source": "tests"},
        "row_index": 3,
        "sample_index": 1,
        "base_seed": 1000,
        "options": OPTIONS | options,
        "completions": completions,
        "expected": expected,
    }


async def check(tmp_path: Path, *cases: object) -> Report:
    sandbox = FakeSandbox(lambda command: result(f"{command}\n"))
    return await check_trajectories(write_lines(tmp_path / "cases.jsonl", cases), PACK, sandbox)


async def test_a_whole_record_is_compared(tmp_path: Path) -> None:
    first, last = bash("x" * 100), answer("42")
    observation = "x" * 30 + "\n...[truncated]...\n" + "x" * 15 + "\n\n[exit_code] 0"
    expected = {
        "key": "case_solve:sample01",
        "task_id": "case_solve",
        "row_index": 3,
        "sample_index": 1,
        "seed": 1001006,
        "score": 1.0,
        "answer": "42",
        "prediction": "42",
        "completion": last,
        "used_bash": True,
        "termination_reason": "final_answer",
        "answer_status": "answered",
        "generated_tokens": len(first) + len(last),
        "react_error": None,
        "react_steps": [
            {
                "turn": 1,
                "assistant": first,
                "action": {"name": "bash", "arguments": {"command": "x" * 100}},
                "observation": observation,
            }
        ],
        "trace_rounds": 1,
        "score_method": "math_paper_react_cli_exact_fallback",
        "turn_seeds": [1001006, 1001103],
        "messages_after_prompt": [
            {"role": "assistant", "content": first},
            {"role": "user", "content": f"<bash> {observation}"},
            {"role": "assistant", "content": last},
        ],
    }

    report = await check(tmp_path, case("solve", first, last, expected=expected))

    assert list(report.lines()) == ["1 passed, 0 failed"]


async def test_a_record_that_differs_in_one_field_is_a_failed_case(tmp_path: Path) -> None:
    cases = [
        case("wrong", bash("ls"), answer("41"), expected={"score": 1.0}),
        case("right", bash("ls"), answer("41"), expected={"score": 0.0}),
    ]

    report = await check(tmp_path, *cases)

    assert (report.passed, report.failed, report.mismatches[0].name) == (1, 1, "wrong")


async def test_a_case_that_goes_on_where_the_original_had_ended_fails_alone(tmp_path: Path) -> None:
    cases = [
        case("goes_on", "Hm.", expected={"termination_reason": "final_answer"}),
        case("ends", bash("ls"), answer("42"), expected={"termination_reason": "final_answer"}),
    ]

    report = await check(tmp_path, *cases)

    assert (report.passed, report.failed) == (1, 1)
    assert report.mismatches[0].got.startswith("went on behind its last completion")


DEEP = 'Action: {"name": "bash", "arguments": {"command": ' + "[" * 2000 + "]" * 2000 + "}}"
LONG_INT = 'Action: {"name": "bash", "arguments": {"command": ' + "9" * 5000 + "}}"


@pytest.mark.parametrize(
    ("unreadable", "kind"), [(DEEP, "RecursionError"), (LONG_INT, "ValueError")], ids=["depth", "digits"]
)
async def test_a_completion_that_cannot_be_read_is_said_but_is_no_step(
    tmp_path: Path, unreadable: str, kind: str
) -> None:
    text = f"Final answer: 42\n{unreadable}"
    expected: dict[str, Any] = {
        "termination_reason": "request_error",
        "score": 0.0,
        "score_method": "math_paper_react_cli_request_error",
        "answer_status": "answered",
        "prediction": "42",
        "completion": text,
        "trace_rounds": 1,
        "used_bash": True,
        "turn_seeds": [1001006, 1001103],
    }
    steps = {
        "messages_after_prompt": [
            {"role": "assistant", "content": bash("ls")},
            {"role": "user", "content": "<bash> ls\n\n[exit_code] 0"},
            {"role": "assistant", "content": text},
        ]
    }
    room = {"max_model_len": 100_000}
    recorded = case("unreadable", bash("ls"), text, expected=expected | steps, **room)
    worded = case("worded", bash("ls"), text, expected={"react_error": kind}, **room)

    report = await check(tmp_path, recorded, worded)

    assert (report.passed, report.failed) == (1, 1)
    assert report.mismatches[0].name == "worded"
    assert kind in report.mismatches[0].got


async def test_the_largest_context_counts_prompts_that_fitted_and_what_was_written(tmp_path: Path) -> None:
    written = "Hm." * 30
    whole = case("fits", written, written, expected={"max_context_tokens": 0}, max_turns=1)
    refused = case("refused", None, None, expected={"max_context_tokens": 0})
    too_long = case("too_long", written, expected={"max_context_tokens": 0}, max_model_len=650)

    report = await check(tmp_path, whole, refused, too_long)

    prompt = "<|im_start|>system\nUse the shell, then answer.<|im_end|>\n"
    prompt += "<|im_start|>user\nQ: How many?<|im_end|>\n<|im_start|>assistant\n"
    assert [json.loads(one.got)["max_context_tokens"] for one in report.mismatches] == [
        len(prompt) + len(written),
        len(prompt),
        len(prompt) + len(written),
    ]


async def test_a_turn_refused_once_is_asked_again_with_its_seed(tmp_path: Path) -> None:
    expected = {"turn_seeds": [1001006, 1001006, 1001103], "termination_reason": "final_answer"}

    report = await check(tmp_path, case("again", None, bash("ls"), answer("42"), expected=expected))

    assert report.failed == 0


async def test_a_trajectory_refused_at_its_first_turn_has_said_nothing(tmp_path: Path) -> None:
    expected = {
        "completion": "",
        "prediction": "",
        "react_steps": [],
        "messages_after_prompt": [],
        "turn_seeds": [1001006, 1001006],
        "react_error": "RuntimeError: engine refused the prompt",
        "answer_status": "missing_final_answer",
        "generated_tokens": 0,
    }

    report = await check(tmp_path, case("refused", None, None, expected=expected))

    assert list(report.lines()) == ["1 passed, 0 failed"]


async def test_half_a_surrogate_pair_in_a_completion_can_be_replayed(tmp_path: Path) -> None:
    expected = {"completion": "Final answer: \ud800", "prediction": "\ud800", "score": 0.0}

    report = await check(tmp_path, case("half", bash("ls"), "Final answer: \ud800", expected=expected))

    assert report.failed == 0


async def test_what_a_case_holds_beside_its_own_keys_is_ignored(tmp_path: Path) -> None:
    noted = case("noted", bash("ls"), answer("42"), expected={"score": 1.0}) | {"note": "why it is here"}

    assert (await check(tmp_path, noted)).failed == 0


async def test_a_file_without_cases_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no trajectory"):
        await check(tmp_path)
