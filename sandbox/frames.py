"""The wire format between a client and the agent inside a container. Pure; the peer is taken for hostile.

A request is one header, the environment as NUL-terminated `NAME=value` entries, and the script. An answer is
a sequence of frames: a type byte, a 32-bit length, the payload. Integers are big-endian. The agent's side is
`agent/agent.c`; a change here or there is a new `AGENT_PROTOCOL`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from sandbox.utf8 import Utf8Error, Utf8Fault

AGENT_PROTOCOL = 1
AGENT_LABEL = "recount.agent"

MAX_SCRIPT_BYTES = 16 << 20
# Anything but captured output is small.
MAX_SMALL_PAYLOAD_BYTES = 8 << 10
# Two per cgroup file, one of each other kind, and room.
MAX_FRAMES = 64
# The agent's poll() takes an int.
MAX_TIMEOUT_MS = 2**30

_REQUEST = struct.Struct(">2sHIIQII")
_FRAME = struct.Struct(">BI")
_RESULT = struct.Struct(">BiQQ" + 2 * "QBBQQ")


class FrameType(Enum):
    """Values are the type bytes."""

    HELLO = ord("H")
    STARTED = ord("S")
    CGROUP_BEFORE = ord("B")
    CGROUP_AFTER = ord("A")
    STDOUT_HEAD = ord("o")
    STDOUT_TAIL = ord("O")
    STDERR_HEAD = ord("e")
    STDERR_TAIL = ord("E")
    RESULT = ord("R")
    FAILURE = ord("X")
    END = ord("Z")


_CAPTURE_FRAMES = frozenset(
    (FrameType.STDOUT_HEAD, FrameType.STDOUT_TAIL, FrameType.STDERR_HEAD, FrameType.STDERR_TAIL)
)
_REPEATED_FRAMES = frozenset((FrameType.CGROUP_BEFORE, FrameType.CGROUP_AFTER))


class Ending(IntEnum):
    """What ended the command."""

    ITSELF = 0
    DEADLINE = 1
    OUTPUT = 2


class FrameError(Exception):
    """What came is not what an agent sends."""


@dataclass(frozen=True)
class Frame:
    """One whole frame."""

    type: FrameType
    payload: bytes


@dataclass(frozen=True)
class StreamFacts:
    """Of one output stream, whatever was kept of it."""

    total_bytes: int
    error: Utf8Error | None


@dataclass(frozen=True)
class ResultFrame:
    """The agent's account of the command."""

    ending: Ending
    exit_code: int
    wall_us: int
    cpu_us: int
    stdout: StreamFacts
    stderr: StreamFacts


@dataclass(frozen=True)
class Answer:
    """All frames after the hello, in their places; `result` is None if the agent died before it was told."""

    started: bool
    stdout_head: bytes
    stdout_tail: bytes
    stderr_head: bytes
    stderr_tail: bytes
    cgroup_before: Mapping[str, str]
    cgroup_after: Mapping[str, str]
    result: ResultFrame | None
    failure: str | None


def encode_request(
    script: bytes,
    *,
    timeout_ms: int,
    capture_bytes: int,
    output_limit_bytes: int,
    environment: Mapping[str, str],
) -> bytes:
    """Everything the agent reads for one command."""
    block = b"".join(f"{name}={value}\0".encode() for name, value in environment.items())
    header = _REQUEST.pack(
        b"RQ",
        AGENT_PROTOCOL,
        max(1, min(timeout_ms, MAX_TIMEOUT_MS)),
        capture_bytes,
        output_limit_bytes,
        len(block),
        len(script),
    )
    return header + block + script


def check_script(script: str | bytes) -> bytes:
    """The script's bytes, or `ValueError` in Python's own words for what no command line can hold."""
    data = script.encode("utf-8") if isinstance(script, str) else script
    if b"\0" in data:
        raise ValueError("embedded null byte")
    if len(data) > MAX_SCRIPT_BYTES:
        raise ValueError(f"script of {len(data)} bytes is longer than {MAX_SCRIPT_BYTES}")
    return data


def check_hello(frame: Frame, role: str) -> None:
    """Refuse an agent of another version or in another role."""
    expected = f"recount-agent {AGENT_PROTOCOL} {role}".encode()
    if frame.type is FrameType.FAILURE:
        raise FrameError(f"the agent failed: {_text(frame.payload)}")
    if frame.type is not FrameType.HELLO or frame.payload != expected:
        raise FrameError(f"expected {expected!r}, got {frame.type.name} {frame.payload[:64]!r}")


class FrameReader:
    """Cuts a byte stream into frames; holds at most one unfinished frame of bounded size."""

    def __init__(self, capture_bytes: int) -> None:
        self._capture_bytes = capture_bytes
        self._buffer = bytearray()
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames that are whole with `data`. Raises `FrameError` at the first that no agent sends."""
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            type_byte, length = _FRAME.unpack_from(self._buffer)
            frame_type = _frame_type(type_byte)
            limit = self._capture_bytes if frame_type in _CAPTURE_FRAMES else MAX_SMALL_PAYLOAD_BYTES
            if length > limit:
                raise FrameError(f"{frame_type.name} of {length} bytes exceeds {limit}")
            end = _FRAME.size + length
            if len(self._buffer) < end:
                return
            self._frames += 1
            if self._frames > MAX_FRAMES:
                raise FrameError(f"more than {MAX_FRAMES} frames")
            payload = bytes(self._buffer[_FRAME.size : end])
            del self._buffer[:end]
            yield Frame(frame_type, payload)


class AnswerBuilder:
    """Puts the frames of one answer in their places; each kind but the cgroup files comes once."""

    def __init__(self) -> None:
        self._single: dict[FrameType, bytes] = {}
        self._cgroup: dict[FrameType, dict[str, str]] = {kind: {} for kind in _REPEATED_FRAMES}

    def add(self, frame: Frame) -> bool:
        """Take one frame; True when the answer is complete."""
        if frame.type in _REPEATED_FRAMES:
            name, _, content = frame.payload.partition(b"\0")
            self._cgroup[frame.type][_text(name)] = _text(content)
            return False
        if frame.type is FrameType.HELLO or frame.type in self._single:
            raise FrameError(f"{frame.type.name} came out of turn")
        self._single[frame.type] = frame.payload
        return frame.type in (FrameType.END, FrameType.FAILURE)

    @property
    def started(self) -> bool:
        """Whether the command may have begun."""
        return FrameType.STARTED in self._single

    def build(self) -> Answer:
        """The answer as far as it came. Raises `FrameError` if what came contradicts itself."""
        result_payload = self._single.get(FrameType.RESULT)
        complete = FrameType.END in self._single
        if complete and result_payload is None:
            raise FrameError("the answer ended without a result")
        failure = self._single.get(FrameType.FAILURE)
        answer = Answer(
            started=self.started,
            stdout_head=self._single.get(FrameType.STDOUT_HEAD, b""),
            stdout_tail=self._single.get(FrameType.STDOUT_TAIL, b""),
            stderr_head=self._single.get(FrameType.STDERR_HEAD, b""),
            stderr_tail=self._single.get(FrameType.STDERR_TAIL, b""),
            cgroup_before=self._cgroup[FrameType.CGROUP_BEFORE],
            cgroup_after=self._cgroup[FrameType.CGROUP_AFTER],
            result=decode_result(result_payload) if complete and result_payload is not None else None,
            failure=None if failure is None else _text(failure),
        )
        if answer.result is not None:
            _check_stream(answer.result.stdout, answer.stdout_head, answer.stdout_tail)
            _check_stream(answer.result.stderr, answer.stderr_head, answer.stderr_tail)
        return answer


def decode_result(payload: bytes) -> ResultFrame:
    """The fixed layout of the result frame."""
    if len(payload) != _RESULT.size:
        raise FrameError(f"a result of {len(payload)} bytes, not {_RESULT.size}")
    ending, exit_code, wall_us, cpu_us, *streams = _RESULT.unpack(payload)
    try:
        return ResultFrame(
            ending=Ending(ending),
            exit_code=exit_code,
            wall_us=wall_us,
            cpu_us=cpu_us,
            stdout=_stream_facts(*streams[:5]),
            stderr=_stream_facts(*streams[5:]),
        )
    except ValueError as error:
        raise FrameError(str(error)) from error


def _stream_facts(total_bytes: int, fault: int, lead: int, start: int, end: int) -> StreamFacts:
    if Utf8Fault(fault) is Utf8Fault.NONE:
        return StreamFacts(total_bytes, None)
    if not start < end <= total_bytes:
        raise FrameError(f"UTF-8 fault at {start}-{end} in a stream of {total_bytes} bytes")
    return StreamFacts(total_bytes, Utf8Error(Utf8Fault(fault), lead, start, end))


def _check_stream(facts: StreamFacts, head: bytes, tail: bytes) -> None:
    if len(head) + len(tail) > facts.total_bytes:
        raise FrameError(f"{len(head)} + {len(tail)} bytes kept of {facts.total_bytes}")


def _frame_type(value: int) -> FrameType:
    try:
        return FrameType(value)
    except ValueError as error:
        raise FrameError(f"no frame has type {value}") from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
