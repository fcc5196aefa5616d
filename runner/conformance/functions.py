"""The protocol's functions against recorded calls: JSON lines of `{function, args, expected}`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from runner.conformance.report import Report
from runner.errors import UserError
from runner.jsonl import JsonLinesError, read_json_lines
from runner.protocol.action import is_blocked_command, parse_action, parse_turn
from runner.protocol.answer import (
    displayed_prediction,
    explicit_answer,
    final_answer_line,
    last_boxed,
    normalize_answer,
    strip_think,
)
from runner.protocol.observation import truncate_observation
from runner.protocol.score import score_exact
from runner.protocol.seeds import trajectory_seed, turn_seed

REMEDY = 'every line is an object like {"function": "strip_think", "args": ["text"], "expected": "text"}'


def check_functions(path: Path) -> Report:
    """Run every recorded call of the file at `path` and compare the results.

    A function that is not known, or that raises, is a failed case. Raises `UserError`, naming file and
    line, for a file or line that cannot be read, and for a file without any.
    """
    report = Report()
    try:
        for number, line in read_json_lines(path):
            _check_line(report, line, f"{path}:{number}")
    except JsonLinesError as error:
        raise UserError(str(error), remedy=REMEDY) from error
    if report.passed + report.failed == 0:
        raise UserError(f"{path}: holds no recorded calls", remedy=REMEDY)
    return report


def _check_line(report: Report, line: object, where: str) -> None:
    if not isinstance(line, dict):
        raise UserError(f"{where}: not an object", remedy=REMEDY)
    missing = [key for key in ("function", "args", "expected") if key not in line]
    if missing:
        raise UserError(f"{where}: `{missing[0]}` is missing", remedy=REMEDY)
    name, args, expected = line["function"], line["args"], line["expected"]
    if not isinstance(name, str):
        raise UserError(f"{where}: `function` is not a string", remedy=REMEDY)
    if not isinstance(args, list):
        raise UserError(f"{where}: `args` is not a list", remedy=REMEDY)
    case = f"{name} ({where})"
    function = FUNCTIONS.get(name)
    if function is None:
        report.fail(case, "no such function", expected=expected)
        return
    try:
        got = function(*args)
    except Exception as error:  # noqa: BLE001  # whatever a call raises is this case's result
        report.fail(case, f"raised {type(error).__name__}: {error}", expected=expected)
        return
    report.compare(case, expected, got)


def _score(text: str, gold: str) -> list[object]:
    score = score_exact(text, gold)
    return [score.value, score.method.value]


def _action(text: str) -> dict[str, object] | None:
    action = parse_action(text)
    return None if action is None else action.as_mapping()


def _turn(text: str) -> dict[str, object]:
    turn = parse_turn(text)
    action = None if turn.action is None else turn.action.as_mapping()
    return {"final_answer": turn.final_answer, "action": action}


FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "displayed_prediction": displayed_prediction,
    "explicit_answer": explicit_answer,
    "final_answer_line": final_answer_line,
    "is_blocked_command": is_blocked_command,
    "last_boxed": last_boxed,
    "normalize_answer": normalize_answer,
    "parse_action": _action,
    "parse_turn": _turn,
    "score": _score,
    "strip_think": strip_think,
    "trajectory_seed": trajectory_seed,
    "truncate_observation": truncate_observation,
    "turn_seed": turn_seed,
}
"""The functions that recorded calls may name, with results that JSON can hold."""
