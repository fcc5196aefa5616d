"""Python's own words for bytes that are not UTF-8, from where and how they break."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Utf8Fault(IntEnum):
    """Why CPython's strict decoder stopped. Values are those of the agent's result frame."""

    NONE = 0
    INVALID_START = 1
    INVALID_CONTINUATION = 2
    UNEXPECTED_END = 3


_REASONS = {
    Utf8Fault.INVALID_START: "invalid start byte",
    Utf8Fault.INVALID_CONTINUATION: "invalid continuation byte",
    Utf8Fault.UNEXPECTED_END: "unexpected end of data",
}


@dataclass(frozen=True)
class Utf8Error:
    """The first place where a stream is not UTF-8: bytes `start` up to `end`, the first of them `lead`."""

    fault: Utf8Fault
    lead: int
    start: int
    end: int


def describe(lead: int, start: int, end: int, reason: str) -> str:
    """`str()` of a `UnicodeDecodeError` with these positions; `lead` is the byte at `start`."""
    if end == start + 1:
        return f"'utf-8' codec can't decode byte 0x{lead:02x} in position {start}: {reason}"
    return f"'utf-8' codec can't decode bytes in position {start}-{end - 1}: {reason}"


def decode_error_message(error: Utf8Error | None) -> str | None:
    """Python's message for strictly decoding the whole stream, without having kept the stream."""
    if error is None or error.fault is Utf8Fault.NONE:
        return None
    return describe(error.lead, error.start, error.end, _REASONS[error.fault])
