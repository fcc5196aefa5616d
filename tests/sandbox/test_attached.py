"""The engine's stream framing, cut anywhere, with headers that lie."""

from __future__ import annotations

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from sandbox.attached import Demultiplexer

chunks = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.binary(max_size=20)), max_size=8)


@given(chunks, st.lists(st.integers(0, 300), max_size=8))
def test_only_stdout_comes_through_however_the_stream_is_cut(
    parts: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(struct.pack(">BxxxI", stream, len(body)) + body for stream, body in parts)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    demultiplexer = Demultiplexer()
    out = b"".join(demultiplexer.feed(data[start:end]) for start, end in itertools.pairwise(bounds))
    assert out == b"".join(body for stream, body in parts if stream == 1)


def test_a_length_that_lies_costs_no_memory() -> None:
    demultiplexer = Demultiplexer()
    assert demultiplexer.feed(struct.pack(">BxxxI", 1, 2**32 - 1) + b"abc") == b"abc"
    assert demultiplexer.feed(b"def") == b"def"
