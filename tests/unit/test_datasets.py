"""Data sets: what is wrong with a file is said once, with file and line."""

import hashlib
import json
from pathlib import Path

import pytest

from runner.datasets import load_dataset
from runner.errors import UserError

GOOD = '{"id": "a", "question": "How many?", "answer": "1"}\n'


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_problems_are_numbered_by_their_row_whatever_is_blank_between(tmp_path: Path) -> None:
    path = written(tmp_path, f'{GOOD}\n\r\n{{"id": "b", "question": "?", "answer": 7, "source": "s"}}')

    read = load_dataset("set", path, base_seed=5)

    assert [(one.id, one.row_index, one.answer, one.source) for one in read.problems] == [
        ("a", 0, "1", ""),
        ("b", 1, "7", "s"),
    ]
    assert read.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read.base_seed == 5


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path: Path) -> None:
    path = written(tmp_path, '{"id": "a", "question": "x\u2028y\x85z", "answer": "1"}\n')

    assert load_dataset("set", path, base_seed=0).problems[0].question == "x\u2028y\x85z"


def test_a_limit_keeps_the_first_problems_and_the_whole_file_s_hash(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + GOOD.replace('"a"', '"b"'))

    whole, first = load_dataset("set", path, base_seed=0), load_dataset("set", path, base_seed=0, limit=1)

    assert [one.id for one in first.problems] == ["a"]
    assert first.sha256 == whole.sha256


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("{", 1, "not JSON"),
        (GOOD + "{'id': 1}\n", 2, "not JSON"),
        ('{"id": "a"\n', 1, "not JSON: Expecting ',' delimiter (column 11)"),
        (GOOD + "\n[]\n", 3, "not an object"),
        (GOOD + '"a"\n', 2, "not an object"),
        (b"\xff\xfe\n", 1, "not UTF-8 (byte 0 of the line)"),
        ("[" * 100_000, 1, "not readable as JSON"),
        ('{"question": "?", "answer": "1"}', 1, "id is missing"),
        ('{"id": "a", "answer": "1"}', 1, "question is missing"),
        ('{"id": "a", "question": "?"}', 1, "answer is missing"),
        ('{"id": "a", "question": "?", "answer": " "}', 1, "answer is empty or not a string"),
        ('{"id": "a", "question": "?", "answer": null}', 1, "answer is empty or not a string"),
        ('{"id": "a", "question": "?", "answer": true}', 1, "answer is empty or not a string"),
        ('{"id": 3, "question": "?", "answer": "1"}', 1, "id is empty or not a string"),
        (GOOD + GOOD, 2, "id 'a' stands in line 1 already"),
        (r'{"id": "a", "question": "\ud800", "answer": "1"}', 1, "question holds half of a surrogate pair"),
        (r'{"id": "\udfff", "question": "?", "answer": "1"}', 1, "id holds half of a surrogate pair"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: str | bytes, line: int, message: str) -> None:
    path = written(tmp_path, content)

    with pytest.raises(UserError) as raised:
        load_dataset("set", path, base_seed=0)

    assert raised.value.message.startswith(f"data set set: {path}:{line}: {message}")
    assert raised.value.remedy


def test_a_bad_line_is_named_even_where_a_limit_would_leave_it_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=":2: not an object"):
        load_dataset("set", written(tmp_path, GOOD + "[]"), base_seed=0, limit=1)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_a_problem_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match="holds no problem"):
        load_dataset("set", written(tmp_path, content), base_seed=0)


@pytest.mark.parametrize("name", ["gone.jsonl", "."])
def test_what_is_no_file_is_named_with_the_option_that_names_another(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"no file .*\n.*--data set=FILE"):
        load_dataset("set", tmp_path / name, base_seed=0)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UserError, match="/proc/self/mem: Input/output error"):
        load_dataset("set", Path("/proc/self/mem"), base_seed=0)


def test_another_file_than_the_pinned_one_is_refused_with_both_hashes(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    found = hashlib.sha256(GOOD.encode()).hexdigest()

    assert load_dataset("set", path, base_seed=0, sha256=found).problems
    with pytest.raises(UserError) as raised:
        load_dataset("set", path, base_seed=0, sha256="0" * 64)

    assert "0" * 64 in raised.value.message
    assert found in raised.value.message


def test_a_problem_in_json_escapes_is_read_as_the_text_it_is(tmp_path: Path) -> None:
    row = {"id": "ä", "question": "😀\n", "answer": "½"}
    problem = load_dataset("set", written(tmp_path, json.dumps(row)), base_seed=0).problems[0]

    assert (problem.id, problem.question, problem.answer) == ("ä", "😀\n", "½")
