"""The files and functions that docs/architecture.md walks through are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:runner|sandbox|benchmarks|tests|datasets)/[\w/.-]*)`")
STEP = re.compile(r"^\| \d+ \| `([\w/]+\.py)`, `(?:\w+\.)?(\w+)` \|", re.MULTILINE)


@pytest.mark.parametrize("path", sorted(set(PATH.findall(PAGE))))
def test_a_path_that_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), STEP.findall(PAGE))
def test_a_function_of_the_walk_is_in_its_file(path: str, name: str) -> None:
    assert re.search(rf"\b(?:def|class) {name}\b", (ROOT / path).read_text(encoding="utf-8"))


def test_the_walk_has_functions_to_follow() -> None:
    assert len(STEP.findall(PAGE)) >= 8
