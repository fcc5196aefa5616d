"""One trajectory under the protocol: turns, warnings, limits, observations and scores."""

from typing import Any

import pytest
from support.builders import PACK, RULES, SAMPLING, answer, bash, job
from support.fake_sandbox import FakeSandbox, result, stream
from support.plays import play, says

from runner.engines.base import (
    GenerationRequest,
    PromptTooLongError,
    RequestRefusedError,
)
from runner.events import ProblemRecord, TurnDone, TurnKind
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.results.records import messages_after_prompt, react_steps, trajectory_record
from runner.trajectory import Limits
from sandbox import ActionResult, CapturedStream, Limit, Usage

pytestmark = pytest.mark.anyio


def contents(request: GenerationRequest) -> list[str]:
    return [message["content"] for message in request.prompt.messages]


async def test_an_answer_after_bash_ends_the_trajectory_with_its_score() -> None:
    sandbox = FakeSandbox(lambda _: result("41\n"))

    played, _ = await play(says(bash("echo 41"), answer("42")), sandbox)

    end = played.terminated
    assert end is not None
    assert (end.termination, end.score) == (Termination.FINAL_ANSWER, 1.0)
    assert (end.score_method, end.answer_status) == (ScoreMethod.EXACT_FALLBACK, AnswerStatus.ANSWERED)
    assert (end.prediction, end.used_bash, end.react_error) == ("42", True, None)
    assert sandbox.commands == ["echo 41"]


async def test_a_wrong_answer_is_scored_as_one() -> None:
    played, _ = await play(says(bash("true"), answer("41")))

    assert played.terminated is not None
    assert played.terminated.score == 0.0
    assert played.terminated.score_method is ScoreMethod.EXACT_FALLBACK


async def test_an_answer_before_any_bash_goes_back_with_a_warning() -> None:
    engine = says(answer("42"), bash("true"), answer("42"))

    played, _ = await play(engine)

    assert contents(engine.requests[1])[-2:] == [answer("42"), "<form> compute first"]
    assert [step.get("action") for step in react_steps(played)] == [
        None,
        {"name": "bash", "arguments": {"command": "true"}},
    ]
    assert played.terminated is not None
    assert played.terminated.score == 1.0


async def test_neither_action_nor_answer_goes_back_with_a_warning() -> None:
    engine = says("Hm.", bash("true"), answer("42"))

    await play(engine)

    assert contents(engine.requests[1])[-1] == "<form> neither action nor answer"


async def test_an_action_of_another_name_runs_nothing() -> None:
    sandbox = FakeSandbox()
    engine = says('Action: {"name": "python", "arguments": {"command": "x"}}', bash("true"), answer("42"))

    await play(engine, sandbox)

    assert contents(engine.requests[1])[-1] == "<python> no action python"
    assert sandbox.commands == ["true"]


@pytest.mark.parametrize("command", ["", "  \n "])
async def test_a_blank_command_runs_nothing_and_is_no_use_of_bash(command: str) -> None:
    sandbox = FakeSandbox()
    engine = says(bash(command), answer("42"), bash("true"), answer("42"))

    played, _ = await play(engine, sandbox)

    assert contents(engine.requests[1])[-1] == "<bash> nothing to run"
    assert contents(engine.requests[2])[-1] == "<form> compute first"
    assert sandbox.commands == ["true"]
    assert played.terminated is not None
    assert played.terminated.used_bash


async def test_a_blocked_command_runs_nothing_but_is_use_of_bash() -> None:
    sandbox = FakeSandbox()
    engine = says(bash("sudo ls"), answer("42"))

    played, _ = await play(engine, sandbox)

    assert contents(engine.requests[1])[-1] == "<bash> not allowed"
    assert sandbox.workspaces == []
    assert played.terminated is not None
    assert (played.terminated.score, played.terminated.used_bash) == (1.0, True)


async def test_a_command_that_is_no_string_is_run_as_its_python_text() -> None:
    sandbox = FakeSandbox()

    await play(says('Action: {"name": "bash", "arguments": {"command": ["ls", 1]}}', answer("42")), sandbox)

    assert sandbox.commands == ["['ls', 1]"]


async def test_an_answer_inside_a_thought_is_none() -> None:
    engine = says(bash("true"), "<think>Final answer: 42</think> Hm.", answer("42"))

    await play(engine)

    assert contents(engine.requests[2])[-1] == "<form> neither action nor answer"


async def test_an_answer_beside_an_action_does_not_end_it() -> None:
    sandbox = FakeSandbox()
    engine = says(f"Final answer: 42\n{bash('ls')}", answer("42"))

    await play(engine, sandbox)

    assert sandbox.commands == ["ls"]
    assert len(engine.requests) == 2


async def test_the_conversation_is_prompt_then_completion_and_observation_in_turn() -> None:
    sandbox = FakeSandbox(lambda _: result("7\n", "oops\n", 3))
    engine = says(bash("ls"), answer("42"))

    played, _ = await play(engine, sandbox)

    assert list(engine.requests[1].prompt.messages) == [
        {"role": "system", "content": "Use the shell, then answer."},
        {"role": "user", "content": "Q: How many?"},
        {"role": "assistant", "content": bash("ls")},
        {"role": "user", "content": "<bash> 7\n\n[stderr]\noops\n\n[exit_code] 3"},
    ]
    assert messages_after_prompt(played, PACK) == [
        {"role": "assistant", "content": bash("ls")},
        {"role": "user", "content": "<bash> 7\n\n[stderr]\noops\n\n[exit_code] 3"},
        {"role": "assistant", "content": answer("42")},
    ]


async def test_every_turn_has_its_seed_limits_and_stop_strings() -> None:
    engine = says("a", "b", "c", "d")

    played, _ = await play(engine)

    base = 1000
    seeds = [base, base + 97, base + 194, base + 291]
    assert [one.seed for one in engine.requests] == seeds
    assert {(one.max_tokens, one.stop, one.sampling) for one in engine.requests} == {
        (500, ("<form>",), SAMPLING)
    }
    assert played.terminated is not None
    assert list(played.terminated.turn_seeds) == seeds


@pytest.mark.parametrize(("row", "sample", "seed"), [(0, 0, 1000), (5, 0, 1005), (2, 3, 3001011)])
async def test_a_trajectory_s_seed_is_made_of_base_row_and_sample(row: int, sample: int, seed: int) -> None:
    assert job(row=row, sample=sample).seed == seed


async def test_turns_that_run_out_are_a_limit_scored_by_the_last_completion() -> None:
    played, _ = await play(says(bash("true"), "Hm", "Hm", f"Final answer: 42\n{bash('ls')}"))

    end = played.terminated
    assert end is not None
    assert (end.termination, end.react_error) == (Termination.MAX_TURNS, "max_react_turns_exceeded")
    assert (end.score, end.score_method) == (1.0, ScoreMethod.EXACT_FALLBACK)
    assert len(react_steps(played)) == 4


async def test_without_bash_the_right_answer_scores_nothing() -> None:
    played, _ = await play(says(*[answer("42")] * 4))

    assert played.terminated is not None
    assert (played.terminated.score, played.terminated.score_method) == (0.0, ScoreMethod.NO_BASH_TOOL_USE)


async def test_a_prompt_that_leaves_no_room_for_a_turn_is_not_sent() -> None:
    sandbox = FakeSandbox(lambda _: result("x" * 150))
    engine = says(*[bash("ls")] * 4)
    small = Limits(4, 900, 500, 2.0, 200)

    played, _ = await play(engine, sandbox, limits=small)

    end = played.terminated
    assert end is not None
    assert end.termination is Termination.CONTEXT_LENGTH_EXCEEDED
    assert (end.score, end.score_method) == (0.0, ScoreMethod.CONTEXT_LENGTH_EXCEEDED)
    assert end.react_error == "context_length_exceeded"
    assert len(engine.requests) == len(end.turn_seeds) == 1
    assert end.max_context_tokens <= 900


async def test_a_prompt_that_fits_to_the_token_is_sent() -> None:
    counted = await says().render(RULES_PROMPT)
    exactly = Limits(1, (counted.tokens or 0) + 500, 500, 2.0, 200)
    engine = says("Hm.")

    played, _ = await play(engine, limits=exactly)

    assert played.terminated is not None
    assert played.terminated.termination is Termination.MAX_TURNS


RULES_PROMPT: Any = (
    {"role": "system", "content": RULES.pack.system_prompt},
    {"role": "user", "content": "Q: How many?"},
)


async def test_a_server_that_counts_itself_ends_it_without_a_seed_for_the_turn() -> None:
    engine = says(bash("true"), PromptTooLongError("too long"))
    engine._counts = False

    played, _ = await play(engine)

    assert played.terminated is not None
    assert played.terminated.termination is Termination.CONTEXT_LENGTH_EXCEEDED
    assert list(played.terminated.turn_seeds) == [1000]


async def test_a_refused_turn_is_tried_once_more_with_its_seed() -> None:
    engine = says(RequestRefusedError("ValueError: no"), bash("true"), answer("42"))

    played, events = await play(engine)

    assert played.terminated is not None
    assert played.terminated.score == 1.0
    assert list(played.terminated.turn_seeds) == [1000, 1000, 1097]
    assert [one.seeds for one in events if isinstance(one, TurnDone)] == [(1000, 1000), (1097,)]


async def test_a_turn_refused_twice_is_a_request_error_in_the_engine_s_words() -> None:
    refused = RequestRefusedError("ValueError: no")
    engine = says(bash("true"), refused, refused)

    played, _ = await play(engine)

    end = played.terminated
    assert end is not None
    assert (end.termination, end.react_error) == (Termination.REQUEST_ERROR, "ValueError: no")
    assert (end.score, end.score_method) == (0.0, ScoreMethod.REQUEST_ERROR)
    assert list(end.turn_seeds) == [1000, 1097, 1097]
    assert len(played.turns) == 1


async def test_a_completion_that_breaks_the_parser_is_a_request_error() -> None:
    deep = 'Action: {"name": "bash", "arguments": {"command": ' + "[" * 2000 + "]" * 2000 + "}}"

    played, _ = await play(says(bash("true"), f"Final answer: 42\n{deep}"))

    end = played.terminated
    assert end is not None
    assert end.termination is Termination.REQUEST_ERROR
    assert end.score == 0.0
    assert (end.react_error or "").startswith("RecursionError: maximum recursion depth exceeded")
    assert trajectory_record(played, PROBLEM)["completion"].startswith("Final answer: 42")
    assert len(react_steps(played)) == 1


PROBLEM = ProblemRecord(id="p0", row_index=0, question="How many?", answer="42")


async def test_a_command_that_could_not_be_started_is_told_in_python_s_words() -> None:
    sandbox = FakeSandbox()
    engine = says(bash("echo \x00"), bash("echo \ud800"), answer("42"))

    played, events = await play(engine, sandbox)

    assert contents(engine.requests[1])[-1] == "<bash> [ERROR] Failed to execute command: embedded null byte"
    assert "surrogates not allowed" in contents(engine.requests[2])[-1]
    assert sandbox.commands == []
    assert [one.tool for one in events if isinstance(one, TurnDone)] == [None, None, None]
    assert played.terminated is not None
    assert played.terminated.used_bash


@pytest.mark.parametrize(
    ("outcome", "observation"),
    [
        (result(), "Bash exited with code 0 and no output."),
        (result("a\r\nb\rc"), "a\nb\nc\n[exit_code] 0"),
        (result(exit_code=-9), "Bash exited with code -9 and no output."),
        (
            result("partly", exit_code=None, timed_out=True, limits=(Limit.TIME,)),
            "Bash timed out after 2.0s.",
        ),
        (result("flood", exit_code=None, limits=(Limit.OUTPUT,)), "Bash timed out after 2.0s."),
        (
            ActionResult(
                stream(b"\xff", decode_error="bad byte"), stream(b""), 0, False, (), Usage(0, 0, 0, 0)
            ),
            "[ERROR] Failed to execute command: bad byte",
        ),
        (
            ActionResult(
                stream(b"\xff", decode_error="first"),
                stream(b"\xff", decode_error="second"),
                0,
                False,
                (),
                Usage(0, 0, 0, 0),
            ),
            "[ERROR] Failed to execute command: first",
        ),
        (
            ActionResult(
                CapturedStream("é".encode() * 100 + b"\xc3", b"\xa9" + "é".encode() * 100, 10_000, None),
                stream(b""),
                0,
                False,
                (),
                Usage(0, 0, 0, 0),
            ),
            "é" * 100 + "\n...[truncated]...\n" + "é" * 86 + "\n[exit_code] 0",
        ),
        (
            ActionResult(
                CapturedStream(b"a" * 300, b"b" * 300, 10_000, None),
                stream(b""),
                0,
                False,
                (),
                Usage(0, 0, 0, 0),
            ),
            "a" * 100 + "\n...[truncated]...\n" + "b" * 86 + "\n[exit_code] 0",
        ),
    ],
    ids=[
        *("no output", "newlines", "signal", "time-out", "output limit", "not UTF-8", "neither is UTF-8"),
        *("a character cut in two", "truncated"),
    ],
)
async def test_a_result_is_worded_as_the_report_s_harness_does(
    outcome: ActionResult, observation: str
) -> None:
    engine = says(bash("cmd"), answer("42"))

    await play(engine, FakeSandbox(lambda _: outcome))

    assert contents(engine.requests[1])[-1] == f"<bash> {observation}"


async def test_a_turn_s_event_tells_how_its_command_went() -> None:
    sandbox = FakeSandbox(lambda _: result("out", "err", 1, limits=(Limit.MEMORY,)))

    _, events = await play(says(bash("cmd"), answer("42")), sandbox)

    turn = next(one for one in events if isinstance(one, TurnDone))
    assert turn.tool is not None
    assert (turn.tool.exit_code, turn.tool.limits) == (1, ("memory",))
    assert (turn.tool.stdout_bytes, turn.tool.stderr_bytes) == (3, 3)
    assert (turn.kind, turn.engine) == (TurnKind.ACTION, "fake")
