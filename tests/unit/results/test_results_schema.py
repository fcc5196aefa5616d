"""The results file has a schema, every run's results fit it, and the documentation names what is in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from support.fake_sandbox import FakeSandbox
from support.final4_like import artifacts_of, lost_now_and_then, never, plan_of, run_of
from support.runs import run_plan

from runner.events import Event, Terminated
from runner.plan import build_engine, make_plan
from runner.run import write_results

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]
SCHEMA: dict[str, Any] = json.loads(
    (ROOT / "runner/data/schemas/evaluation_results.schema.json").read_text(encoding="utf-8")
)
SECTIONS = ("provenance", "verdict", "engines", "dataset", "trajectory", "judgement", "comparison")


def problems_of(run_dir: Path) -> list[str]:
    document = json.loads((run_dir / "evaluation_results.json").read_bytes())
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [f"{one.json_path}: {one.message[:200]}" for one in validator.iter_errors(document)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


async def test_the_demo_s_results_fit(tmp_path: Path) -> None:
    plan = make_plan("demo")
    with anyio.fail_after(60):
        outcome = await run_plan(
            plan,
            build_engine(plan),
            FakeSandbox(),
            run_id="demo",
            results_dir=tmp_path,
            listener=lambda _: None,
        )

    assert problems_of(outcome.run_dir) == []
    assert outcome.results["verdict"] is None


async def test_a_run_with_a_verdict_fits(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    outcome = await run_of(tmp_path, plan_of(directory, artifacts=artifacts_of(directory)))
    worse = await run_of(tmp_path, plan_of(directory, rows=False), never, run_id="worse")

    assert problems_of(outcome.run_dir) == []
    assert problems_of(worse.run_dir) == []
    assert outcome.results["verdict"]["pooled"]["reach"] is not None
    assert outcome.results["verdict"]["datasets"]["dapo"]["solved_at_least_once"]


async def test_an_unfinished_run_fits(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in"), lost_now_and_then)

    assert outcome.results["datasets"]["dapo"]["unfinished"]
    assert problems_of(outcome.run_dir) == []


async def test_an_interrupted_and_a_killed_run_fit(tmp_path: Path) -> None:
    async def stop(delay_after: int) -> Path:
        ended = 0

        def raise_in_the_middle(event: Event) -> None:
            nonlocal ended
            ended += isinstance(event, Terminated)
            if ended == delay_after:
                raise RuntimeError("stopped in the middle")

        with pytest.raises(RuntimeError, match="in the middle"):
            await run_of(tmp_path, plan_of(tmp_path / "in"), listener=raise_in_the_middle)
        return tmp_path / "results" / "run"

    run_dir = await stop(7)
    assert json.loads((run_dir / "evaluation_results.json").read_bytes())["end"] == "failed"
    assert problems_of(run_dir) == []

    journal = run_dir / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for kept in (1, 2, 5, len(lines) - 1):
        journal.write_bytes(b"".join(lines[:kept]))
        assert write_results(run_dir).results["end"] is None
        assert problems_of(run_dir) == []

    ended = lines[-1].replace(b'"reason":"failed"', b'"reason":"interrupted"')
    journal.write_bytes(b"".join(lines[:-1]) + ended)
    assert write_results(run_dir).results["end"] == "interrupted"
    assert problems_of(run_dir) == []


def test_a_key_that_nobody_described_is_found(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    found = [one.message for one in validator.iter_errors({"surprise": 1})]

    assert any("'surprise' was unexpected" in message for message in found)
    assert any("'run_id' is a required property" in message for message in found)


def described() -> Iterator[str]:
    yield from SCHEMA["properties"]
    for section in SECTIONS:
        yield from SCHEMA["$defs"][section]["properties"]
    for section in ("hashes", "images", "seeds"):
        yield from SCHEMA["$defs"]["provenance"]["properties"][section]["properties"]
    for section in ("run", "trajectories"):
        yield from SCHEMA["$defs"]["engines"]["properties"][section]["properties"]
    yield from SCHEMA["$defs"]["dataset"]["properties"]["mean"]["properties"]
    yield from SCHEMA["$defs"]["dataset"]["properties"]["tools"]["properties"]


def test_the_documentation_names_every_key_of_every_section() -> None:
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")

    assert [name for name in dict.fromkeys(described()) if f"`{name}`" not in page] == []
