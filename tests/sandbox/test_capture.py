"""Both captures, the agent's in C and ours in Python, against Python decoding the whole at once."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.capture import StreamCapture
from sandbox.types import CapturedStream
from sandbox.utf8 import Utf8Error, Utf8Fault, decode_error_message

HERE = Path(__file__).parent
AGENT = HERE.parents[1] / "sandbox" / "agent"

# Uniform bytes fail at once; these come close to valid at every boundary of the encoding.
EDGES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC]
EDGES += [0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
near_utf8 = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from(EDGES), max_size=12).map(bytes),
    st.tuples(st.text(max_size=12), st.lists(st.sampled_from(EDGES), max_size=4), st.text(max_size=4)).map(
        lambda parts: parts[0].encode() + bytes(parts[1]) + parts[2].encode()
    ),
)

Capture = Callable[[bytes, int, int], CapturedStream]


def python_capture(data: bytes, piece: int, limit: int) -> CapturedStream:
    capture = StreamCapture(limit)
    for at in range(0, len(data), piece):
        capture.feed(data[at : at + piece])
    return capture.finish()


@pytest.fixture(scope="module")
def agent_capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the agent's capture with")
    library = tmp_path_factory.mktemp("capture") / "capture.so"
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{AGENT}",
            "-o",
            library,
            HERE / "capture_harness.c",
        ],
        check=True,
        timeout=60,
    )
    harness = ctypes.CDLL(str(library)).harness
    harness.restype = ctypes.c_uint64
    harness.argtypes = [ctypes.c_char_p, *[ctypes.c_size_t] * 3, ctypes.c_void_p, ctypes.c_char_p]

    def capture(data: bytes, piece: int, limit: int) -> CapturedStream:
        facts = (ctypes.c_uint64 * 5)()
        kept = ctypes.create_string_buffer(2 * limit + 1)
        length = harness(data, len(data), piece, limit, facts, kept)
        total, fault, lead, start, end = facts
        error = Utf8Error(Utf8Fault(fault), lead, start, end)
        head = kept.raw[: min(limit, total)]
        return CapturedStream(head, kept.raw[len(head) : length], total, decode_error_message(error))

    return capture


@pytest.fixture(params=["python", "agent"], scope="module")
def capture(request: pytest.FixtureRequest) -> Capture:
    if request.param == "python":
        return python_capture
    agent: Capture = request.getfixturevalue("agent_capture")
    return agent


def pythons_message(data: bytes) -> str | None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return str(error)
    return None


@settings(max_examples=2000, deadline=None)
@given(data=near_utf8, piece=st.integers(1, 9))
def test_the_decode_error_is_pythons_however_the_bytes_arrive(
    capture: Capture, data: bytes, piece: int
) -> None:
    assert capture(data, piece, 16).decode_error == pythons_message(data)


@given(data=st.binary(max_size=80), piece=st.integers(1, 50), limit=st.integers(0, 20))
def test_head_and_tail_are_the_two_ends(capture: Capture, data: bytes, piece: int, limit: int) -> None:
    kept = capture(data, piece, limit)
    rest = data[limit:]
    assert kept.head == data[:limit]
    assert kept.tail == (rest[-limit:] if limit else b"")
    assert kept.total_bytes == len(data)
    assert kept.dropped_bytes == max(0, len(data) - 2 * limit)
