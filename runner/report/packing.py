"""Fitting all transcripts into the page: gzip in base64, and a limit a text where that is still too much.

The page must open anywhere, from a disk, with no second file that a browser would have to be allowed to read.
What does not fit is left out in the middle of the longest texts, and said; the trace beside the page has it.
"""

import base64
import gzip
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from runner.report.transcripts import Clipping, Scores, index_of, text_lengths, turns_of
from runner.state import RunState, TrajectoryState

BUDGET_BYTES = 9_200_000
"""Of all transcripts in the page, as base64. The whole page is to stay under 10 MB."""
PART_CHARS = 1_000_000
"""Of JSON in one part: so much is unpacked to show one trajectory."""
LEAST_CHARS = 400
"""A text is not cut to less; if that is too much, the last trajectories have no turns in the page."""
_LEVEL = 9
_SAFETY = 0.95


@dataclass(frozen=True)
class Packed:
    """The page's data: an index and parts, in base64, which holds nothing that a page could act on."""

    index: str
    parts: tuple[str, ...]
    limit_chars: int | None
    """Beyond which texts were cut."""
    left_out_chars: int
    without_turns: int
    """Trajectories whose turns did not fit at all."""

    @property
    def size_bytes(self) -> int:
        """Of all of it in the page."""
        return len(self.index) + sum(map(len, self.parts))


def pack(state: RunState, scores: Scores, budget_bytes: int = BUDGET_BYTES) -> Packed:
    """Return all transcripts, whole if they fit and cut if not."""
    packed = _pack(state, scores, Clipping(), None)
    limit: int | None = None
    while packed.size_bytes > budget_bytes and (limit is None or limit > LEAST_CHARS):
        limit = _limit_for(list(text_lengths(state)), _SAFETY * budget_bytes / packed.size_bytes, limit)
        packed = _pack(state, scores, Clipping(limit), None)
    if packed.size_bytes > budget_bytes:
        packed = _pack(state, scores, Clipping(limit), budget_bytes)
    return packed


def _limit_for(lengths: Sequence[int], share: float, before: int | None) -> int:
    """Return the limit with which so much of what there was stays: texts are cut, the longest first."""
    ordered = sorted(min(length, before) if before else length for length in lengths)
    sums = [0, *accumulate(ordered)]
    wanted = share * sums[-1]
    totals = [sums[index] + length * (len(ordered) - index) for index, length in enumerate(ordered)]
    index = bisect_right(totals, wanted)
    left = len(ordered) - index
    return max(int((wanted - sums[index]) / left) if left else ordered[-1], LEAST_CHARS)


def _pack(state: RunState, scores: Scores, clipping: Clipping, budget_bytes: int | None) -> Packed:
    index = index_of(state, scores)
    trajectories = _in_order(state, index["rows"])
    parts: list[str] = []
    left_out, used, without = 0, 0, 0
    for group in _groups(trajectories, clipping):
        part = _compressed([turns for _, turns, _ in group])
        if budget_bytes is not None and used + len(part) > budget_bytes:
            without += len(group)
            for row, _, _ in group:
                row["left"] = -1
            continue
        for place, (row, _, missing) in enumerate(group):
            row["part"], row["place"] = len(parts), place
            left_out += missing
            if missing:
                row["left"] = missing
        parts.append(part)
        used += len(part)
    return Packed(_compressed(index), tuple(parts), clipping.limit_chars, left_out, without)


def _in_order(
    state: RunState, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], TrajectoryState]]:
    for row, key in zip(rows, state.planned(), strict=True):
        one = state.trajectories.get(key)
        if one is not None and one.turns:
            yield row, one


Group = list[tuple[dict[str, Any], list[dict[str, Any]], int]]


def _groups(
    trajectories: Iterator[tuple[dict[str, Any], TrajectoryState]], clipping: Clipping
) -> Iterator[Group]:
    group: Group = []
    chars = 0
    for row, trajectory in trajectories:
        turns, missing = turns_of(trajectory, clipping)
        group.append((row, turns, missing))
        chars += sum(len(turn["assistant"]) + len(turn.get("observation", "")) for turn in turns)
        if chars >= PART_CHARS:
            yield group
            group, chars = [], 0
    if group:
        yield group


def _compressed(value: object) -> str:
    document = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")
    # Without a moment in it: the same journal gives the same page.
    return base64.b64encode(gzip.compress(document, _LEVEL, mtime=0)).decode("ascii")
