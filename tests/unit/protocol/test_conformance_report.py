"""What a conformance check of the functions says, and what it refuses to read."""

import json
import math
from pathlib import Path

import pytest

from runner.conformance.functions import check_functions
from runner.conformance.report import MAX_SHOWN, Report
from runner.errors import UserError


def calls(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "calls.jsonl"
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines),
        encoding="utf-8",
    )
    return path


def call(function: str, args: object, expected: object) -> dict[str, object]:
    return {"function": function, "args": args, "expected": expected}


def test_calls_that_hold_and_calls_that_do_not_are_counted(tmp_path: Path) -> None:
    path = calls(
        tmp_path,
        call("score", ["Answer: 7", "7"], [1.0, "exact_fallback"]),
        call("normalize_answer", ["X"], "X"),
        call("parse_nothing", [], None),
        call("strip_think", [5], "5"),
    )

    lines = list(check_functions(path).lines())

    assert lines[0] == f"FAILED normalize_answer ({path}:2)"
    assert lines[1:3] == ['  expected "X"', '  got      "x"']
    assert lines[5] == "  got      no such function"
    assert "TypeError" in lines[8]
    assert lines[-1] == "1 passed, 3 failed"


@pytest.mark.parametrize(
    "line", ["{", "[]", '"x"', '{"function": "score"}', '{"function": 1, "args": [], "expected": 1}', "\x00"]
)
def test_a_bad_line_is_named_with_its_file(tmp_path: Path, line: str) -> None:
    path = calls(tmp_path, call("strip_think", ["a"], "a"), "", line)

    with pytest.raises(UserError, match=r"calls\.jsonl:3: "):
        check_functions(path)


def test_arguments_that_are_no_list_are_a_bad_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"calls\.jsonl:1: `args` is not a list"):
        check_functions(calls(tmp_path, call("strip_think", "a", "a")))


def test_a_file_that_is_absent_or_holds_nothing_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.jsonl"):
        check_functions(tmp_path / "absent.jsonl")
    with pytest.raises(UserError, match="holds no recorded calls"):
        check_functions(calls(tmp_path))


def test_values_are_compared_as_json() -> None:
    report = Report()

    assert report.compare("nan", math.nan, math.nan)
    assert report.compare("order", {"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not report.compare("float", 1, 1.0)
    assert not report.compare("bool", 1, True)


def test_many_mismatches_are_counted_but_not_all_shown() -> None:
    report = Report()
    for number in range(MAX_SHOWN + 5):
        report.compare(f"case {number}", number, -1)

    lines = list(report.lines())

    assert sum(line.startswith("FAILED") for line in lines) == MAX_SHOWN
    assert lines[-2:] == ["... and 5 more", f"0 passed, {MAX_SHOWN + 5} failed"]


def test_a_long_value_is_cut_to_its_first_difference() -> None:
    report = Report()
    report.compare("long", "a" * 5_000 + "b" + "d" * 5_000, "a" * 5_000 + "c\n")

    expected, got = (line for line in report.lines() if line.startswith("  "))

    assert "ab" in expected
    assert "ac" in got
    assert max(len(expected), len(got)) < 250
