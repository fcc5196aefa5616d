"""What CONTRIBUTING says of a scorer, a data set and an engine, done in a copy with made-up ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.builders import answer, bash, write_lines, write_profile
from support.made_up import made_up_run

ROOT = Path(__file__).resolve().parents[2]

SCORER = '''"""`same-length`: equal if it is as long."""

from runner.rescore.scorers import Compare, Graded, ScorerModule


def load() -> Compare:
    def compare(answer: str, gold: str) -> Graded:
        return Graded(float(len(answer) == len(gold)), "same_length", answer, gold)

    return compare


SCORER = ScorerModule(load)
'''
SCORER_LINE = '    SAME_LENGTH = "same-length"\n'

DATASET = "".join(
    json.dumps({"id": f"sum_{number}", "question": f"What is {number} + {number}?", "answer": 2 * number})
    + "\n"
    for number in range(3)
)
DATASET_ENTRY = '\n[[datasets]]\nname = "sums"\npath = "bundled:sums.jsonl"\nbase_seed = 20261202\n'

DATASET_LICENCE = "| `sums.jsonl` | sums of our own | MIT | one looks at them |\n"
DATASET_RUN = """
import sys
from pathlib import Path
import anyio
from runner.plan import build_engine, make_plan
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan

async def main():
    plan = make_plan("cpu", overrides={"engine": {"kind": "scripted", "script": sys.argv[1]}}, only=("sums",))
    outcome = await run_plan(plan, build_engine(plan), FakeSandbox(), run_id="run",
                             results_dir=Path(sys.argv[2]), listener=lambda _: None)
    print(outcome.results["datasets"]["sums"]["mean"]["value"], outcome.reason.value)

anyio.run(main)
"""

ENGINE = '''"""An engine that says the same to everything."""

from typing import Literal

import anyio

from runner.engines.base import Completion, Engine, GenerationRequest, Prompt
from runner.engines.kind import EngineKind, EngineSection, RunFacts
from runner.protocol.prompt import Message


class ParrotSettings(EngineSection):
    """`[engine] kind = "parrot"`: says the same to everything, after a while."""

    kind: Literal["parrot"]
    says: str
    pause_s: float = 0.0


class ParrotEngine(Engine):
    def __init__(self, settings: ParrotSettings) -> None:
        self._settings = settings

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(messages, tokens=len(messages))

    async def generate(self, request: GenerationRequest) -> Completion:
        await anyio.sleep(self._settings.pause_s)
        return Completion(self._settings.says, request.prompt.tokens or 0, 1, "stop", "parrot")

    def identity(self) -> dict[str, object]:
        return self._settings.model_dump()

    def deviations(self) -> tuple[str, ...]:
        return ("the model is a parrot",)


def build(settings: ParrotSettings, _run: RunFacts) -> Engine:
    return ParrotEngine(settings)


KIND = EngineKind(
    ParrotSettings,
    build,
    harmless_settings=frozenset({"pause_s"}),
    harmless_identity=frozenset({"pause_s"}),
)
'''
ENGINE_LINE = '    "runner.engines.parrot",\n'
ENGINE_RUN = """
import sys
from pathlib import Path
import anyio
from runner.errors import UserError
from runner.plan import build_engine, make_plan
from runner.resume import open_resumption
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan

profile, results_dir = sys.argv[1], Path(sys.argv[2])

async def main():
    plan = make_plan(profile)
    outcome = await run_plan(plan, build_engine(plan), FakeSandbox(), run_id="run",
                             results_dir=results_dir, listener=lambda _: None)
    results = outcome.results
    print(results["engine"]["kind"], results["deviations"], results["datasets"]["set"]["mean"]["value"])

anyio.run(main)
with open_resumption(results_dir / "run") as resumption:
    resumption.check_plan(make_plan(profile, overrides={"engine.pause_s": 0.5}))
    try:
        resumption.check_plan(make_plan(profile, overrides={"engine.says": "other"}))
    except UserError as error:
        print(error.message.splitlines()[1].strip())
"""


class Copy:
    """A copy of the source, in which lines can be added and commands run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("runner", "sandbox", "datasets", "tools", "benchmarks"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)

    def add(self, path: str, content: str) -> None:
        """Add a file of its own."""
        assert not (self.root / path).exists()
        (self.root / path).write_text(content, encoding="utf-8")

    def insert(self, path: str, before: str, lines: str) -> None:
        """Insert lines before those that are there, once."""
        file = self.root / path
        content = file.read_text(encoding="utf-8")
        assert content.count(before) == 1
        file.write_text(content.replace(before, lines + before), encoding="utf-8")

    def append(self, path: str, lines: str) -> None:
        """Add lines at the end."""
        with (self.root / path).open("a", encoding="utf-8") as file:
            file.write(lines)

    def add_scorer(self) -> None:
        """Do what is told of a scorer."""
        self.add("runner/rescore/scorers/same_length.py", SCORER)
        self.insert("runner/rescore/registry.py", '    MATH_VERIFY = "math-verify"\n', SCORER_LINE)

    def add_dataset(self) -> None:
        """Do what is told of a data set."""
        self.add("runner/data/datasets/sums.jsonl", DATASET)
        self.insert("runner/data/datasets/README.md", "\nThe demo's problems", DATASET_LICENCE)
        self.insert("runner/data/profiles/cpu.toml", "\n[engine]\n", DATASET_ENTRY)

    def add_engine(self) -> None:
        """Do what is told of an engine."""
        self.add("runner/engines/parrot.py", ENGINE)
        self.insert("runner/engines/registry.py", '    "runner.engines.vllm.kind",\n', ENGINE_LINE)

    def check(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a check of the repository over the copy alone."""
        return subprocess.run(
            [Path(sys.executable).with_name(tool), *arguments],
            cwd=self.root,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    def python(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run Python over the copy alone."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=os.environ
            | {"PYTHONPATH": f"{self.root}:{ROOT / 'tests'}", "COLUMNS": "120", "NO_COLOR": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy")


def test_a_scorer_is_a_file_and_a_line(copy: Copy, tmp_path: Path) -> None:
    copy.add_scorer()
    run_dir = made_up_run(tmp_path / "results" / "run", {"p0": ["42", "41"], "p1": ["7", "42"]})

    scored = copy.python("-m", "runner", "report", "run", "--scorer", "same-length", cwd=tmp_path)
    exported = copy.python("-m", "runner", "export", "run", "--format", "csv", cwd=tmp_path)

    assert (scored.returncode, scored.stderr) == (0, "")
    assert "same-length differs from the recorded score for 1" in scored.stdout
    found = json.loads((run_dir / "scores" / "same-length.json").read_text(encoding="utf-8"))
    assert found["datasets"]["set"]["mean"] == 0.75
    assert "same-length" in (run_dir / "report.html").read_text(encoding="utf-8")
    assert exported.returncode == 0


def test_a_scorer_is_one_for_comparisons_too(copy: Copy, tmp_path: Path) -> None:
    copy.add_scorer()
    for name, answers in (("one", ["42", "41"]), ("other", ["42", "9"])):
        made_up_run(tmp_path / "results" / name, {"p0": answers})
        copy.python("-m", "runner", "report", name, "--no-html", "--scorer", "same-length", cwd=tmp_path)

    compared = copy.python("-m", "runner", "compare", "one", "other", "--scorer", "same-length", cwd=tmp_path)

    assert (compared.returncode, compared.stderr) == (0, "")
    assert "-50.0" in compared.stdout


def test_a_data_set_is_a_file_and_an_entry_of_a_profile(copy: Copy, tmp_path: Path) -> None:
    copy.add_dataset()
    served = ("--engine", "openai", "--model", "m", "--base-url", "http://127.0.0.1:1/v1")

    planned = copy.python("-m", "runner", "eval", "cpu", *served, "--dry-run", cwd=tmp_path)
    alone = copy.python("-m", "runner", "eval", "cpu", *served, "--only", "sums", "--dry-run", cwd=tmp_path)

    assert (planned.returncode, planned.stderr) == (0, "")
    assert "data set sums" in planned.stdout
    assert "3 problems, base seed 20261202" in planned.stdout
    assert "3 (1 a problem)" in alone.stdout


def test_a_run_solves_the_problems_of_an_added_data_set(copy: Copy, tmp_path: Path) -> None:
    copy.add_dataset()
    script = write_lines(
        tmp_path / "script.jsonl",
        (
            {
                "dataset": "sums",
                "id": f"sum_{n}",
                "sample": 0,
                "completions": [bash("true"), answer(str(n * n))],
            }
            for n in range(3)
        ),
    )

    done = copy.python("-c", DATASET_RUN, str(script), str(tmp_path / "results"), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    # n + n is n * n for 0 and 2.
    assert done.stdout == f"{2 / 3} complete\n"


def test_an_engine_is_a_file_and_a_line(copy: Copy, tmp_path: Path) -> None:
    copy.add_engine()
    profile = write_profile(tmp_path / "own", {"kind": "parrot", "says": "42"})

    done = copy.python("-c", ENGINE_RUN, str(profile), str(tmp_path / "results"), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    # Nothing was computed in a sandbox, which the protocol does not credit; a pause changes no result.
    assert done.stdout.splitlines() == [
        "parrot ['the model is a parrot'] 0.0",
        "engine.says: then 42, now other",
    ]


def test_an_added_engine_is_one_for_the_command_line_too(copy: Copy, tmp_path: Path) -> None:
    copy.add_engine()
    profile = str(write_profile(tmp_path / "own", {"kind": "parrot", "says": "42"}))

    planned = copy.python("-m", "runner", "eval", profile, "--dry-run", cwd=tmp_path)
    chosen = copy.python("-m", "runner", "eval", "demo", "--engine", "parrot", cwd=tmp_path)
    invented = copy.python("-m", "runner", "eval", "demo", "--engine", "invented", cwd=tmp_path)

    assert (planned.returncode, planned.stderr) == (0, "")
    assert "kind=parrot says=42 pause_s=0.0" in planned.stdout
    assert (chosen.returncode, "engine.says: is missing" in chosen.stderr) == (2, True)
    assert "parrot" in invented.stderr


def test_what_was_added_needs_no_line_anywhere_else(copy: Copy) -> None:
    copy.add_scorer()
    copy.add_dataset()
    copy.add_engine()

    arrows = copy.check("lint-imports", "--no-cache")
    unused = copy.check("vulture")

    assert arrows.returncode == 0, arrows.stdout
    assert unused.returncode == 0, unused.stdout


def test_every_data_set_that_comes_with_recount_has_its_licence_beside_it() -> None:
    directory = ROOT / "runner" / "data" / "datasets"
    rows = (directory / "README.md").read_text(encoding="utf-8").splitlines()
    named = {row.split("`")[1] for row in rows if row.startswith("| `")}

    assert named == {path.name for path in directory.glob("*.jsonl")}
