"""Rules about the repository's files as such."""

import re
from collections import Counter
from pathlib import Path

import pytest
from support.markdown import ROOT

PLACES = ("runner", "sandbox", "tests", "benchmarks", "docs", "deploy", "requirements", "tools", ".ci")
TEXTS = {
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".txt",
    ".in",
    ".lock",
    ".json",
    ".j2",
    ".css",
    ".js",
    ".c",
    "",
}
REGISTRIES = re.compile(r"pypi\.org|pythonhosted|index-url|npmjs|docker\.io/|--find-links", re.IGNORECASE)
MACHINES = re.compile(r"(?<![\w.])/(?:work|root|home/[a-z]+)/(?!agent\b)[a-z]")
HERE = Path(__file__)


def texts() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name not in (".coverage", ".git")]
    found += [path for place in PLACES for path in (ROOT / place).rglob("*") if path.is_file()]
    return [
        path for path in found if path.suffix in TEXTS and "__pycache__" not in path.parts and path != HERE
    ]


def lines_with(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in paths
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        )
        if pattern.search(line)
    ]


def test_no_two_test_files_share_a_name() -> None:
    counted = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "__init__.py")
    counted.pop("conftest.py")
    assert [name for name, count in counted.items() if count > 1] == []


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(REGISTRIES, texts()) == []


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    assert lines_with(MACHINES, texts()) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (REGISTRIES, "--index-url https://files.pythonhosted.org/simple"),
        (MACHINES, "see /root/notes"),
        (MACHINES, 'Path("/work/x")'),
    ],
)
def test_such_a_line_is_found(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


def test_every_check_that_is_run_has_its_reason() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    script = (ROOT / "test").read_text(encoding="utf-8")
    run = set(re.findall(r'^ *"\$venv/bin/([a-z-]+)"', script, re.MULTILINE)) - {"python"}
    assert {"ruff", "mypy", "shellcheck", "vulture", "lint-imports", "hadolint"} <= run
    assert {name for name in run if f"`{name}" not in told} == set()
    gates = {path.stem.removeprefix("test_") for path in HERE.parent.glob("test_*.py")}
    assert {name for name in gates if f"`{name}`" not in told} == set()
