"""The parser of the agent's answers, fed what an agent sends and what none does."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.frames import (
    AGENT_PROTOCOL,
    MAX_FRAMES,
    MAX_SCRIPT_BYTES,
    AnswerBuilder,
    Ending,
    Frame,
    FrameError,
    FrameReader,
    FrameType,
    check_hello,
    check_script,
    encode_request,
)

ROOT = Path(__file__).parents[2]


def wire(kind: str, payload: bytes = b"") -> bytes:
    return struct.pack(">BI", ord(kind), len(payload)) + payload


def result(
    *, ending: int = 0, code: int = 0, stdout: int = 0, fault: tuple[int, ...] = (0, 0, 0, 0)
) -> bytes:
    return wire("R", struct.pack(">BiQQQBBQQQBBQQ", ending, code, 5, 6, stdout, *fault, 0, 0, 0, 0, 0))


def parse(data: bytes, capture_bytes: int = 100) -> list[Frame]:
    return list(FrameReader(capture_bytes).feed(data))


def answer_of(data: bytes) -> AnswerBuilder:
    builder = AnswerBuilder()
    for frame in parse(data):
        builder.add(frame)
    return builder


ANSWER = (
    wire("S") + wire("o", b"ab") + wire("O", b"yz") + wire("A", b"/f\x00text") + result(stdout=9) + wire("Z")
)


@given(st.lists(st.integers(1, len(ANSWER)), max_size=6))
def test_frames_do_not_depend_on_how_the_stream_was_cut(cuts: list[int]) -> None:
    reader = FrameReader(100)
    bounds = [0, *sorted(cuts), len(ANSWER)]
    frames = [frame for start, end in itertools.pairwise(bounds) for frame in reader.feed(ANSWER[start:end])]
    assert frames == parse(ANSWER)


def test_a_whole_answer_is_put_together() -> None:
    answer = answer_of(ANSWER).build()
    assert (answer.stdout_head, answer.stdout_tail) == (b"ab", b"yz")
    assert answer.cgroup_after == {"/f": "text"}
    assert answer.result is not None
    assert answer.result.ending is Ending.ITSELF
    assert answer.result.stdout.total_bytes == 9


def test_an_exit_code_can_be_negative() -> None:
    answer = answer_of(result(code=-9) + wire("Z")).build()
    assert answer.result is not None
    assert answer.result.exit_code == -9


def test_an_answer_that_breaks_off_has_no_result() -> None:
    assert answer_of(ANSWER[:-5]).build().result is None


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    try:
        answer_of(data).build()
    except FrameError:
        return


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (wire("q"), "no frame has type"),
        (struct.pack(">BI", ord("o"), 101), "exceeds 100"),
        (struct.pack(">BI", ord("R"), 2**31), "exceeds"),
        (wire("S") + wire("S"), "out of turn"),
        (wire("H"), "out of turn"),
        (wire("A", b"x") * (MAX_FRAMES + 1), "more than"),
        (wire("Z"), "without a result"),
        (wire("R", b"short") + wire("Z"), "a result of 5 bytes"),
        (result(ending=7) + wire("Z"), "7"),
        (wire("o", b"abc") + result(stdout=2) + wire("Z"), "kept of 2"),
        (result(stdout=5, fault=(1, 255, 4, 9)) + wire("Z"), "UTF-8 fault"),
    ],
)
def test_what_no_agent_sends_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        answer_of(data).build()


def test_an_agent_of_another_version_is_refused() -> None:
    check_hello(Frame(FrameType.HELLO, f"recount-agent {AGENT_PROTOCOL} run".encode()), "run")
    with pytest.raises(FrameError, match="expected"):
        check_hello(Frame(FrameType.HELLO, b"recount-agent 0 run"), "run")


def test_a_request_carries_its_parts_in_order() -> None:
    request = encode_request(
        b"echo", timeout_ms=7, capture_bytes=8, output_limit_bytes=9, environment={"A": "b", "C": ""}
    )
    assert request == struct.pack(">2sHIIQII", b"RQ", AGENT_PROTOCOL, 7, 8, 9, 7, 4) + b"A=b\0C=\0echo"


def test_a_script_with_nul_is_refused_in_pythons_words() -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        check_script("echo a\0b")


def test_a_script_beyond_the_agents_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than"):
        check_script(b"x" * (MAX_SCRIPT_BYTES + 1))


def test_the_image_is_built_with_the_version_this_program_speaks() -> None:
    dockerfile = (ROOT / "Dockerfile.sandbox").read_text()
    assert set(re.findall(r"^ARG AGENT_PROTOCOL=(\d+)$", dockerfile, re.MULTILINE)) == {str(AGENT_PROTOCOL)}
