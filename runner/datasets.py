"""Data sets: JSON lines of problems with an id, a question and a gold answer."""

import re
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UserError
from runner.hashing import sha256_file
from runner.jsonl import JsonLinesError, read_json_lines
from runner.paths import is_file

_REQUIRED = ("id", "question", "answer")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Problem:
    """One problem. `row_index` counts the file's rows from 0; seeds derive from it."""

    id: str
    row_index: int
    question: str
    answer: str
    source: str = ""


@dataclass(frozen=True)
class Dataset:
    """A data set as read: `sha256` is the whole file's also where only its first problems are run."""

    name: str
    path: Path
    sha256: str
    base_seed: int
    problems: tuple[Problem, ...]


def load_dataset(
    name: str, path: Path, *, base_seed: int, sha256: str | None = None, limit: int | None = None
) -> Dataset:
    """Read a data set, all of it checked even where `limit` keeps only its first problems.

    Raises `UserError` naming file and line for what is missing, broken or double, and for a file whose
    SHA-256 is not the one given.
    """
    if not is_file(path):
        raise UserError(
            f"data set {name}: no file {path}",
            remedy=f"recount fetch PROFILE brings what a published one needs;"
            f" another file: --data {name}=FILE",
        )
    try:
        found = sha256_file(path)
    except OSError as error:
        raise UserError(
            f"data set {name}: {path}: {error.strerror or error}", remedy="make the file readable"
        ) from error
    if sha256 is not None and found != sha256:
        raise UserError(
            f"data set {name}: {path} is not the expected file\n"
            f"  expected SHA-256 {sha256}\n  found    SHA-256 {found}",
            remedy=f"fetch it again, or name another data set: --data {name}=FILE",
        )
    try:
        lines = list(read_json_lines(path))
    except JsonLinesError as error:
        raise UserError(
            f"data set {name}: {error}", remedy="each line is one JSON object with id, question and answer"
        ) from error
    problems: list[Problem] = []
    first_line: dict[str, int] = {}
    for row_index, (number, row) in enumerate(lines):
        problem = _problem(row, row_index, f"data set {name}: {path}:{number}")
        if problem.id in first_line:
            raise UserError(
                f"data set {name}: {path}:{number}: id {problem.id!r} stands in line"
                f" {first_line[problem.id]} already",
                remedy="ids are unique within a data set",
            )
        first_line[problem.id] = number
        problems.append(problem)
    if not problems:
        raise UserError(f"data set {name}: {path} holds no problem", remedy="one JSON object a line")
    return Dataset(name, path, found, base_seed, tuple(problems[:limit]))


def _problem(row: object, row_index: int, where: str) -> Problem:
    if not isinstance(row, dict):
        raise UserError(f"{where}: not an object", remedy="each line is one JSON object")
    values: dict[str, str] = {}
    for key in _REQUIRED:
        value = row.get(key)
        # Numbers are common gold answers in files written by hand; bool is an int and no answer.
        if isinstance(value, int | float) and not isinstance(value, bool) and key == "answer":
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            state = "is missing" if key not in row else "is empty or not a string"
            raise UserError(f"{where}: {key} {state}", remedy="each line has id, question and answer")
        values[key] = value
    source = row.get("source")
    values["source"] = source if isinstance(source, str) else ""
    for key, value in values.items():
        if _LONE_SURROGATE.search(value):
            raise UserError(
                f"{where}: {key} holds half of a surrogate pair, which is no character",
                remedy="write the character itself, or both halves",
            )
    return Problem(row_index=row_index, **values)
