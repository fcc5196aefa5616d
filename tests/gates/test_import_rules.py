"""The import contracts of pyproject.toml hold and find what breaks them; starting loads nothing heavy."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.markdown import ROOT

from runner.engines.registry import MODULES

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
ENTRIES = ("runner.cli.main", "runner.api", "sandbox", *MODULES)
HEAVY = {
    "huggingface_hub",
    "inspect_ai",
    "math_verify",
    "playwright",
    "pynvml",
    "ray",
    "scipy",
    "sympy",
    "torch",
    "transformers",
    "vllm",
}
"""What takes a second to load, or is not there without an extra. Textual has a command of its own."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Our packages by themselves, to break."""
    for package in ("runner", "sandbox"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=directory, capture_output=True, text=True, check=False, timeout=120
    )


def plant(tree: Path, module: str, line: str) -> None:
    path = tree / f"{module.replace('.', '/')}.py"
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")


def test_the_contracts_hold(tree: Path) -> None:
    done = lint_imports(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("runner.journal", "from runner.cli import main", "Arrows point down"),
        ("runner.protocol.score", "from runner.errors import UserError", "Arrows point down"),
        ("runner.events", "import runner.results", "Arrows point down"),
        ("sandbox.engine", "from runner.errors import UserError", "The sandbox stands alone"),
        ("runner.run", "import docker", "Who runs the model never talks to the Docker engine"),
        ("runner.plan", "import ray", "The core runs without an engine's packages"),
        ("runner.views.lines", "import runner.engines.pool", "What a run left is read without its engines"),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(tree: Path, module: str, line: str, contract: str) -> None:
    plant(tree, module, line)
    done = lint_imports(tree)
    assert done.returncode == 1
    assert f"{contract} BROKEN" in " ".join(done.stdout.split())


def test_a_new_module_has_to_be_put_into_a_layer(tree: Path) -> None:
    (tree / "runner" / "helpers.py").write_text('"""Anything."""\n', encoding="utf-8")
    done = lint_imports(tree)
    assert done.returncode == 1
    assert "helpers" in done.stdout


def at_start(tree: Path, entries: tuple[str, ...]) -> dict[str, str]:
    """All modules that importing the entries loads by statements of modules' own level, and who imports each.

    Read from the text, since a test process may have loaded anything already.
    """
    found: dict[str, str] = {}
    left = [(entry, "the start") for entry in entries]
    while left:
        module, importer = left.pop()
        if module in found:
            continue
        path = tree / f"{module.replace('.', '/')}.py"
        if not path.exists():
            path = path.with_suffix("") / "__init__.py"
        if not path.exists():
            if module.partition(".")[0] not in ("runner", "sandbox"):
                found[module.partition(".")[0]] = importer
            continue
        found[module] = importer
        parents = module.split(".")
        left += [(".".join(parents[:depth]), module) for depth in range(1, len(parents))]
        left += [(name, module) for name in _imported(ast.parse(path.read_text(encoding="utf-8")).body)]
    return found


def _imported(body: list[ast.stmt]) -> list[str]:
    names: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names.append(statement.module)
            names += [f"{statement.module}.{alias.name}" for alias in statement.names]
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.unparse(statement.test):
            names += _imported(statement.body) + _imported(statement.orelse)
        elif isinstance(statement, ast.Try):
            names += _imported(statement.body)
    return names


def test_starting_loads_nothing_heavy() -> None:
    found = at_start(ROOT, ENTRIES)
    assert len(found) > 150, "the walk found hardly anything"
    assert {name: importer for name, importer in found.items() if name in HEAVY} == {}


def test_a_heavy_import_behind_the_start_is_found(tree: Path) -> None:
    plant(tree, "runner.statistics", "import scipy.stats")
    assert at_start(tree, ENTRIES)["scipy"] == "runner.statistics"


def test_a_heavy_import_of_a_kind_of_engine_is_found(tree: Path) -> None:
    plant(tree, "runner.engines.vllm.kind", "import vllm")
    assert at_start(tree, ENTRIES)["vllm"] == "runner.engines.vllm.kind"
