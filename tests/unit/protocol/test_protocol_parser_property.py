"""Every reader of model text, over any text: it never raises, and a longer one takes it longer in proportion.

How long is measured within one process, in its own CPU time, and compared by a ratio: a quadratic reader is
sixteen times as slow for four times the text, a linear one four times. What is too quick to be measured is
taken for linear.
"""

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runner.protocol.action import (
    ParsedTurn,
    TurnParseError,
    bash_command,
    is_blocked_command,
    parse_action,
    parse_turn,
)
from runner.protocol.answer import (
    displayed_prediction,
    explicit_answer,
    final_answer_line,
    last_boxed,
    normalize_answer,
    strip_think,
)
from runner.protocol.observation import exec_error_of, truncate_observation, universal_newlines
from runner.protocol.score import Termination, answer_status, score_exact, score_trajectory

MEGABYTE = 1_000_000
SHORT = MEGABYTE // 4
LINEAR_AT_MOST = 10.0
"""Between the four of a linear reader and the sixteen of a quadratic one."""
TOO_QUICK_S = 0.05
TRIES = 3
"""The least of so many counts: what disturbs a measurement only adds to it."""

READERS: dict[str, Callable[[str], object]] = {
    one.__name__: one
    for one in (
        parse_turn,
        parse_action,
        final_answer_line,
        explicit_answer,
        displayed_prediction,
        last_boxed,
        normalize_answer,
        strip_think,
        answer_status,
        is_blocked_command,
        exec_error_of,
        universal_newlines,
    )
} | {
    "score_exact of a completion": lambda text: score_exact(text, "1/3"),
    "score_exact of an answer": lambda text: score_exact(f"Answer: {text}", "1/3"),
    "score_exact of a gold answer": lambda text: score_exact("Answer: 1/3", text),
    "score_trajectory": lambda text: score_trajectory(
        text, "42", used_bash=True, termination=Termination.FINAL_ANSWER
    ),
    "truncate_observation": lambda text: truncate_observation(text, 6_000),
}

# What the grammars of actions, answers, numbers and JSON are made of, and what breaks them.
TOKENS = st.sampled_from(
    [
        *("<think>", "</think>", "<THINK", "Action:", "action: {", "Final answer:", "answer：", "Answer"),
        *(
            '{"name": "bash", "arguments": {"command": "',
            "'name': 'bash'",
            '"command"',
            "\\boxed{",
            "\x08oxed{",
        ),
        *("{", "}", "[", "]", '"', "'", "\\", "\\n", ":", ",", "/", ".", "-", "+", "_", "e9", "7", "9" * 40),
        *(" ", "\t", "\n", "\r", "\r\n", "\u2028", "\u3000", "\x00", "\ud800", "\udfff", "٣", "½", "NaN"),
        *("Infinity", "1e999999999", "1/0", "sudo", ";kill ", "null", "true"),
    ]
)
TEXTS = st.lists(st.one_of(TOKENS, st.text(st.characters(), max_size=5)), max_size=40).map("".join)
"""`st.characters()` holds lone surrogates too: JSON escapes bring them into completions."""


def read(reader: Callable[[str], object], text: str) -> object:
    """What the reader makes of a text. The one error there is ends a trajectory by the protocol's rules."""
    try:
        return reader(text)
    except TurnParseError as error:
        return error.original


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@given(text=TEXTS)
@example(text="")
def test_a_reader_never_raises_and_says_the_same_twice(reader: Callable[[str], object], text: str) -> None:
    assert read(reader, text) == read(reader, text)


@given(text=TEXTS)
def test_only_reading_an_action_may_end_a_trajectory(text: str) -> None:
    for name, reader in READERS.items():
        if name not in {"parse_turn", "parse_action"}:
            reader(text)


@given(text=TEXTS)
def test_what_is_read_can_be_run_and_written_down(text: str) -> None:
    try:
        turn = parse_turn(text)
    except TurnParseError:
        return
    assert isinstance(turn, ParsedTurn)
    assert turn.final_answer is None or isinstance(turn.final_answer, str)
    if turn.action is not None:
        command = bash_command(turn.action)
        assert isinstance(is_blocked_command(command), bool)
        assert set(turn.action.as_mapping()) == {"name", "arguments"}


def cpu_s(reader: Callable[[str], object], text: str) -> float:
    best = float("inf")
    for _ in range(TRIES):
        began = time.thread_time()
        read(reader, text)
        best = min(best, time.thread_time() - began)
        if best < TOO_QUICK_S:
            break
    return best


def in_proportion(reader: Callable[[str], object], make: Callable[[int], str]) -> bool:
    long_s = cpu_s(reader, make(MEGABYTE))
    return long_s < TOO_QUICK_S or long_s <= LINEAR_AT_MOST * cpu_s(reader, make(SHORT))


@pytest.mark.timeout(600)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(head=TEXTS, piece=st.lists(TOKENS, min_size=1, max_size=4).map("".join), tail=TEXTS)
@example(head="Action: ", piece='{"a":', tail="}")
@example(head="", piece="<think>", tail="</think>")
@example(head='Action: {"name": "bash", "arguments": {"command": "', piece='\\"', tail='"}}')
def test_a_megabyte_of_any_repeated_piece_is_read_in_proportion_to_its_length(
    head: str, piece: str, tail: str
) -> None:
    def make(length: int) -> str:
        return head + piece * (length // len(piece)) + tail

    slow = [name for name, reader in READERS.items() if not in_proportion(reader, make)]
    assert slow == []


def test_a_quadratic_reader_would_be_found() -> None:
    def quadratic(text: str) -> object:
        # A scan from every thousandth character to the end, as nested searches do it.
        return sum(text.find("absent", at) for at in range(0, len(text), 1000))

    assert not in_proportion(quadratic, lambda length: "a" * length)
