"""A small evaluation shaped like final4: two data sets, four samples, figures and rows of our own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from runner.artifacts import Artifacts
from runner.engines.base import EngineUnavailableError, GenerationRequest, TrajectoryKey
from runner.events import Event
from runner.hashing import sha256_text
from runner.plan import Plan, make_plan
from runner.run import RunOutcome
from support.builders import LIMITS_TOML, PACK_DOCUMENT, SAMPLING_TOML, answer, bash, write_lines
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox, result
from support.runs import run_plan

SAMPLES = 4
PROBLEMS = {"dapo": 12, "aime": 5}
WIDE_MARGIN = 0.4
"""Of so few problems a smaller one is never reached."""


def is_right(dataset: str, row: int, sample: int) -> bool:
    """Whether a sample is right in the published rows: a third of the problems is solved now and then."""
    return row % 3 != 0 or (row + sample) % 2 == 0


def ids(dataset: str) -> list[str]:
    """The problems of a data set in order."""
    return [f"{dataset}_{row:03d}" for row in range(PROBLEMS[dataset])]


def published_document() -> dict[str, Any]:
    """Figures in the form of the bundled ones."""
    figures = {}
    for name, count in PROBLEMS.items():
        rows = [[float(is_right(name, row, sample)) for sample in range(SAMPLES)] for row in range(count)]
        figures[name] = {
            "mean": sum(map(sum, rows)) / (count * SAMPLES),
            "max_at_k": sum(map(max, rows)) / count,
        }
    return {
        "checkpoint": "mine/made-up",
        "problems": PROBLEMS,
        "reports": {"final4": {"samples": SAMPLES, "figures": figures}},
        "references": {"final4": ["final4"]},
        "rows_of": "final4",
    }


def rows_text() -> str:
    """The published rows' file."""
    rows = {
        f"{name}_eval": [
            {
                "task_id": one,
                "row_index": row,
                "sample_index": sample,
                "score": float(is_right(name, row, sample)),
            }
            for row, one in enumerate(ids(name))
            for sample in range(SAMPLES)
        ]
        for name in PROBLEMS
    }
    return json.dumps(rows)


def write_inputs(directory: Path, *, margin: float = WIDE_MARGIN) -> Path:
    """Write profile, pack, data sets, published figures and rows; return the profile's path."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pack.json").write_text(json.dumps(PACK_DOCUMENT), encoding="utf-8")
    (directory / "published.json").write_text(json.dumps(published_document()), encoding="utf-8")
    (directory / "rows.json").write_text(rows_text(), encoding="utf-8")
    datasets = ""
    for index, name in enumerate(PROBLEMS):
        write_lines(
            directory / f"{name}.jsonl",
            ({"id": one, "question": f"How many, {one}?", "answer": "42"} for one in ids(name)),
        )
        datasets += (
            f'[[datasets]]\nname = "{name}"\npath = "{name}.jsonl"\nbase_seed = {1000 * (index + 1)}\n\n'
        )
    profile = directory / "final4.toml"
    profile.write_text(
        f'name = "final4"\npack = "pack.json"\nsamples = {SAMPLES}\n{LIMITS_TOML}{SAMPLING_TOML}\n{datasets}'
        '[engine]\nkind = "openai"\nmodel = "m"\nbase_urls = ["http://127.0.0.1:9/v1"]\n\n'
        "[retry]\nattempts = 2\nwait_s = 0.0\n\n"
        f'[verdict]\npublished = "published.json"\nmargin = {margin}\n',
        encoding="utf-8",
    )
    return profile


def plan_of(directory: Path, *, margin: float = WIDE_MARGIN, rows: bool = True, **how: Any) -> Plan:
    """The plan of such a run, its inputs written first."""
    profile = write_inputs(directory, margin=margin)
    return make_plan(str(profile), published_rows=directory / "rows.json" if rows else None, **how)


def artifacts_of(directory: Path, **changes: Any) -> Artifacts:
    """What a fetch of the inputs would have returned."""
    values: dict[str, Any] = {
        "manifest": "made-up",
        "checkpoint": directory / "checkpoint",
        "revision": "c" * 40,
        "datasets": {},
        "pack": None,
        "rows": directory / "rows.json",
        "provenance": None,
        "sha256": {
            "config.json": "1" * 64,
            "model.safetensors": "2" * 64,
            "eval4.json": sha256_text(rows_text()),
        },
        "unverified": (),
        "unpinned": ("config.json",),
    }
    return Artifacts(**values | changes)


class Faithful(FakeEngine):
    """A model that could be the published one: nothing of it forbids the word reproduction."""

    @override
    def deviations(self) -> tuple[str, ...]:
        return ()


Decides = Callable[[TrajectoryKey], bool | None]
"""Whether a trajectory is solved; None is an engine that is gone."""


def as_published(key: TrajectoryKey) -> bool:
    """Solve what the published rows solved."""
    return is_right(key.dataset, int(key.problem_id.rpartition("_")[2]), key.sample)


def never(key: TrajectoryKey) -> bool:
    """Solve nothing."""
    return False


def lost_now_and_then(key: TrajectoryKey) -> bool | None:
    """Lose the first problem of each data set, whatever is tried."""
    return None if key.problem_id.endswith("_000") else as_published(key)


def engine_of(decides: Decides) -> Faithful:
    """An engine whose trajectories run one command and answer."""

    def say(request: GenerationRequest) -> str:
        right = decides(request.key)
        if right is None:
            raise EngineUnavailableError("the engine is gone")
        return bash("echo 42") if request.turn == 0 else answer("42" if right else "41")

    return Faithful(say)


async def run_of(
    tmp_path: Path,
    plan: Plan,
    decides: Decides = as_published,
    *,
    listener: Callable[[Event], None] = lambda _: None,
    run_id: str = "run",
) -> RunOutcome:
    """Run a plan to its end."""
    with anyio.fail_after(60):
        return await run_plan(
            plan,
            engine_of(decides),
            FakeSandbox(lambda _: result("42\n")),
            run_id=run_id,
            results_dir=tmp_path / "results",
            listener=listener,
        )
