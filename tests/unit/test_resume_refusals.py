"""What may not go on: another plan, sandbox or engine, a damaged journal, a run that is at work."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.builders import write_lines
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox
from support.resuming import IDS, plan_for, solve
from support.stopping import go_on, lines_of, start_killed
from typing_extensions import override

from runner.errors import ExitCode, UserError
from runner.events import EndReason, RunResumed
from runner.journal import JOURNAL_NAME, JournalError, JournalWriter, read_journal
from runner.plan import Plan, make_plan

pytestmark = pytest.mark.anyio


class Other(FakeEngine):
    """A vLLM engine that tells of itself what the test says."""

    def __init__(self, **told: object) -> None:
        super().__init__(solve)
        self._told = told

    @override
    def identity(self) -> dict[str, object]:
        return {"kind": "vllm", **self._told}


class OtherSandbox(FakeSandbox):
    """A sandbox that tells of itself what the test says."""

    def __init__(self, **told: str) -> None:
        super().__init__()
        self._told = told

    @override
    async def identity(self) -> dict[str, str]:
        return {"kind": "fake", **self._told}


def with_other_problem(tmp_path: Path) -> Plan:
    plan_for(tmp_path)
    rows = [{"id": one, "question": "Another?", "answer": "42"} for one in IDS]
    write_lines(tmp_path / "in" / "set.jsonl", rows)
    return make_plan(str(tmp_path / "in" / "profile.toml"))


def with_other_pack(tmp_path: Path) -> Plan:
    plan_for(tmp_path)
    pack = tmp_path / "in" / "pack.json"
    pack.write_text(json.dumps(json.loads(pack.read_text()) | {"system_prompt": "Guess."}))
    return make_plan(str(tmp_path / "in" / "profile.toml"))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (lambda path: plan_for(path, samples=3), "samples: then 2, now 3"),
        (lambda path: plan_for(path, overrides={"limits.max_turns": 3}), "limits.max_turns: then 4, now 3"),
        (lambda path: plan_for(path, overrides={"sampling.top_k": 1}), "sampling.top_k: then 40, now 1"),
        (lambda path: plan_for(path, overrides={"engine.model": "b"}), "engine.model: then served, now b"),
        (with_other_problem, "data set set SHA-256: then "),
        (with_other_pack, "protocol pack_sha256: then "),
    ],
    ids=["samples", "limit", "sampling", "model", "data set", "pack"],
)
async def test_another_profile_or_other_files_are_refused_with_a_diff(
    tmp_path: Path, other: Callable[[Path], Plan], named: str
) -> None:
    run_dir = await start_killed(tmp_path, plan_for(tmp_path), FakeEngine(solve), 14)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    engine = FakeEngine(solve)

    with pytest.raises(UserError) as raised:
        await go_on(run_dir, other(tmp_path), engine)

    assert named in raised.value.message
    assert "start a new run" in (raised.value.remedy or "")
    assert raised.value.exit_code is ExitCode.BAD_INPUT
    assert engine.started == 0
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


async def test_another_sandbox_is_refused_before_engines_start(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    same = {"image_contents_sha256": "a" * 64, "policy_sha256": "b" * 64, "kernel": "5.15", "image_id": "1"}
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 14, sandbox=OtherSandbox(**same))
    engine = FakeEngine(solve)

    for name in ("image_contents_sha256", "policy_sha256"):
        with pytest.raises(UserError, match=f"sandbox {name}: then .*, now c"):
            await go_on(run_dir, plan, engine, sandbox=OtherSandbox(**same | {name: "c" * 64}))
    assert engine.started == 0

    rebuilt = OtherSandbox(**same | {"kernel": "6.1", "image_id": "2"})
    outcome = await go_on(run_dir, plan, engine, sandbox=rebuilt)
    (resumed,) = [one for one in read_journal(run_dir / JOURNAL_NAME) if isinstance(one, RunResumed)]
    assert outcome.reason is EndReason.COMPLETE
    assert resumed.resumed.differs == (
        "sandbox kernel: then 5.15, now 6.1",
        "sandbox image_id: then 1, now 2",
    )


async def test_another_engine_is_refused_and_more_of_the_same_is_not(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    told = {"commit": "one", "dtype": "bfloat16", "engines": 4, "versions": {"vllm": ["0.19"], "ray": ["2"]}}
    run_dir = await start_killed(tmp_path, plan, Other(**told), 14)

    for changed, named in (
        ({"commit": "two"}, "engine commit: then one, now two"),
        ({"dtype": "float16"}, "engine dtype: then bfloat16, now float16"),
        ({"versions": {"vllm": ["0.20"], "ray": ["2"]}}, "engine versions.vllm: "),
        ({"invented": 1}, "engine invented: then nothing, now 1"),
    ):
        with pytest.raises(UserError, match=named):
            await go_on(run_dir, plan, Other(**told | changed))

    outcome = await go_on(run_dir, plan, Other(**told | {"engines": 8}))
    (resumed,) = [one for one in read_journal(run_dir / JOURNAL_NAME) if isinstance(one, RunResumed)]
    assert outcome.reason is EndReason.COMPLETE
    assert resumed.resumed.differs == ("engine engines: then 4, now 8",)


async def test_more_at_once_and_more_retries_are_no_other_run(tmp_path: Path) -> None:
    run_dir = await start_killed(tmp_path, plan_for(tmp_path), FakeEngine(solve), 14)
    other = plan_for(tmp_path, overrides={"concurrency.trajectories": 2, "retry.attempts": 9})

    outcome = await go_on(run_dir, other, FakeEngine(solve))

    assert outcome.reason is EndReason.COMPLETE
    assert outcome.results["timings"]["parts"][1]["resumed"]["differs"] == [
        "concurrency.trajectories: then 64, now 2",
        "retry.attempts: then 3, now 9",
    ]


async def test_what_forbids_one_part_to_be_a_reproduction_forbids_the_run(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 14)

    class Worse(FakeEngine):
        @override
        def deviations(self) -> tuple[str, ...]:
            return ("the engine is a fake", "and is ill")

    outcome = await go_on(run_dir, plan, Worse(solve))

    assert outcome.results["deviations"] == ["the engine is a fake", "and is ill"]


async def test_a_run_that_is_at_work_is_refused(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 14)

    with JournalWriter(run_dir / JOURNAL_NAME), pytest.raises(UserError, match="written by another run"):
        await go_on(run_dir, plan, FakeEngine(solve))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: line.replace(b"trajectory_started", b"trajectory_begun_"), r"journal\.jsonl:2: "),
        (lambda line: line.replace(b'"row_index":0', b'"row_index":1'), r"journal\.jsonl:2: the line is not"),
    ],
    ids=["no event", "changed"],
)
async def test_a_damaged_journal_is_named_by_file_and_line_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    plan = plan_for(tmp_path)
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 14)
    lines = lines_of(run_dir)
    lines[1] = damage(lines[1])
    (run_dir / JOURNAL_NAME).write_bytes(b"".join(lines) + b'{"torn')
    before = (run_dir / JOURNAL_NAME).read_bytes()

    with pytest.raises(JournalError, match=message) as raised:
        await go_on(run_dir, plan, FakeEngine(solve))

    assert "whole" in (raised.value.remedy or "")
    assert (run_dir / JOURNAL_NAME).read_bytes() == before


async def test_a_directory_without_a_journal_is_no_run_and_stays_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no journal\.jsonl"):
        await go_on(tmp_path, plan_for(tmp_path), FakeEngine(solve))

    assert not (tmp_path / JOURNAL_NAME).exists()


async def test_a_run_that_was_killed_before_its_first_event_says_that_it_never_started(
    tmp_path: Path,
) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(b'{"type":"run_star')

    with pytest.raises(JournalError, match="the run never started"):
        await go_on(tmp_path, plan_for(tmp_path), FakeEngine(solve))
