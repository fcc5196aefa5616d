"""What CONTRIBUTING says of a scorer, a data set and an engine, done in a copy with made-up ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.builders import write_profile
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

ENGINE = '''"""An engine that says the same to everything."""

from runner.engines.base import Completion, Engine, GenerationRequest, Prompt
from runner.protocol.prompt import Message


class ParrotEngine(Engine):
    def __init__(self, says: str) -> None:
        self._says = says

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(messages, tokens=len(messages))

    async def generate(self, request: GenerationRequest) -> Completion:
        return Completion(self._says, request.prompt.tokens or 0, 1, "stop", "parrot")

    def identity(self) -> dict[str, object]:
        return {"kind": "parrot", "says": self._says}

    def deviations(self) -> tuple[str, ...]:
        return ("the model is a parrot",)
'''
ENGINE_SETTINGS = '''class ParrotEngineSettings(_Section):
    """`[engine] kind = "parrot"`: says the same to everything."""

    kind: Literal["parrot"]
    says: str


'''
ENGINE_BRANCH = """    from runner.engines.parrot import ParrotEngine
    from runner.profile import ParrotEngineSettings

    if isinstance(settings, ParrotEngineSettings):
        return ParrotEngine(settings.says)
"""
ENGINE_RUN = """
import sys
from pathlib import Path
import anyio
from runner.plan import build_engine, make_plan
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan

async def main():
    plan = make_plan(sys.argv[1])
    outcome = await run_plan(plan, build_engine(plan), FakeSandbox(), run_id="run",
                             results_dir=Path(sys.argv[2]), listener=lambda _: None)
    print(outcome.results["engine"]["kind"], outcome.results["deviations"])

anyio.run(main)
"""


class Copy:
    """A copy of the source, in which lines can be added and commands run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("runner", "sandbox", "datasets"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))

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
    copy.add("runner/rescore/scorers/same_length.py", SCORER)
    copy.insert("runner/rescore/model.py", '    MATH_VERIFY = "math-verify"\n', SCORER_LINE)
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
    copy.add("runner/rescore/scorers/same_length.py", SCORER)
    copy.insert("runner/rescore/model.py", '    MATH_VERIFY = "math-verify"\n', SCORER_LINE)
    for name, answers in (("one", ["42", "41"]), ("other", ["42", "9"])):
        made_up_run(tmp_path / "results" / name, {"p0": answers})
        copy.python("-m", "runner", "report", name, "--no-html", "--scorer", "same-length", cwd=tmp_path)

    compared = copy.python("-m", "runner", "compare", "one", "other", "--scorer", "same-length", cwd=tmp_path)

    assert (compared.returncode, compared.stderr) == (0, "")
    assert "-50.0" in compared.stdout


def test_a_data_set_is_a_file_and_an_entry_of_a_profile(copy: Copy, tmp_path: Path) -> None:
    copy.add("runner/data/datasets/sums.jsonl", DATASET)
    copy.insert("runner/data/profiles/cpu.toml", "\n[engine]\n", DATASET_ENTRY)
    served = ("--engine", "openai", "--model", "m", "--base-url", "http://127.0.0.1:1/v1")

    planned = copy.python("-m", "runner", "eval", "cpu", *served, "--dry-run", cwd=tmp_path)
    alone = copy.python("-m", "runner", "eval", "cpu", *served, "--only", "sums", "--dry-run", cwd=tmp_path)

    assert (planned.returncode, planned.stderr) == (0, "")
    assert "data set sums" in planned.stdout
    assert "3 problems, base seed 20261202" in planned.stdout
    assert "3 (1 a problem)" in alone.stdout


def test_an_engine_is_a_file_and_the_places_where_kinds_are_listed(copy: Copy, tmp_path: Path) -> None:
    copy.add("runner/engines/parrot.py", ENGINE)
    copy.insert("runner/profile.py", "EngineSettings = Annotated[\n", ENGINE_SETTINGS)
    copy.insert("runner/profile.py", "ScriptedEngineSettings | OpenAI", "ParrotEngineSettings | ")
    copy.insert("runner/profile.py", '"scripted", "openai", "vllm"})', '"parrot", ')
    copy.insert(
        "runner/plan.py", "    path = resolve_path(settings.script, plan.profile_path)\n", ENGINE_BRANCH
    )
    profile = write_profile(tmp_path / "own", {"kind": "parrot", "says": "Final answer: 42"})

    done = copy.python("-c", ENGINE_RUN, str(profile), str(tmp_path / "results"), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "parrot ['the model is a parrot']\n"
