"""What a conformance check found: how many cases held, and where the others differ."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.clean import clean_text

MAX_SHOWN = 20
"""Mismatches that are printed; one cause tends to fail in hundreds of places."""

SHOWN_CHARS = 160
"""Length of a value in print. Longer ones are cut to what surrounds the first difference."""

CONTEXT_CHARS = 40
"""How much of a cut value stands before the first difference."""

ABSENT = "(nothing)"


@dataclass(frozen=True)
class Mismatch:
    """A case that did not hold; `expected` and `got` in print, already cut."""

    name: str
    expected: str
    got: str


@dataclass
class Report:
    """Collects the cases of one check, in the order in which they were run."""

    passed: int = 0
    failed: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    """The first `MAX_SHOWN` of them."""

    def compare(self, name: str, expected: object, got: object) -> bool:
        """Count a case and say whether it held; both values are what JSON can hold.

        They are compared as JSON with sorted keys, so that `NaN` equals itself and `1`, `1.0` and `true`
        are three things.
        """
        if _as_json(expected) == _as_json(got):
            self.passed += 1
            return True
        self.mismatch(name, expected, got)
        return False

    def mismatch(self, name: str, expected: object, got: object) -> None:
        """Count a case known not to hold; both values are what JSON can hold."""
        expected_json, got_json = _as_json(expected), _as_json(got)
        start = max(_first_difference(expected_json, got_json) - CONTEXT_CHARS, 0)
        self._add(Mismatch(_cut(name, 0), _cut(expected_json, start), _cut(got_json, start)))

    def fail(self, name: str, why: str, *, expected: object = None) -> None:
        """Count a case that could not be compared; `why` stands in the place of what was got."""
        shown = ABSENT if expected is None else _cut(_as_json(expected), 0)
        self._add(Mismatch(_cut(name, 0), shown, _cut(why, 0)))

    def lines(self) -> Iterator[str]:
        """Yield the report in print; its last line is always `N passed, M failed`."""
        for mismatch in self.mismatches:
            yield f"FAILED {mismatch.name}"
            yield f"  expected {mismatch.expected}"
            yield f"  got      {mismatch.got}"
        if self.failed > len(self.mismatches):
            yield f"... and {self.failed - len(self.mismatches)} more"
        yield f"{self.passed} passed, {self.failed} failed"

    def _add(self, mismatch: Mismatch) -> None:
        self.failed += 1
        if len(self.mismatches) < MAX_SHOWN:
            self.mismatches.append(mismatch)


def _as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _first_difference(left: str, right: str) -> int:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return at
    return min(len(left), len(right))


def _cut(text: str, start: int) -> str:
    """Cut `text` to print: harmless, and on one line whatever it holds."""
    end = start + SHOWN_CHARS
    before = "…" if start else ""
    after = f"… ({len(text)} characters)" if end < len(text) else ""
    shown = text[start:end].replace("\r", "\\r").replace("\n", "\\n")
    return before + clean_text(shown, keep_lines=False) + after
