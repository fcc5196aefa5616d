"""A run that stopped goes on: exactly what is missing, and the results of a run that never did."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.builders import write_lines, write_scripted_profile
from support.fake_engine import FakeEngine
from support.fake_sandbox import FakeSandbox
from support.resuming import IDS, plan_for, solve
from support.stopping import comparable, go_on, lines_of, start, start_killed

from runner.engines.base import EngineUnavailableError, GenerationRequest, TrajectoryKey
from runner.errors import ExitCode
from runner.events import EndReason, Event, RunResumed, Terminated, TrajectoryStarted, TurnDone
from runner.journal import JOURNAL_NAME, read_journal, read_state
from runner.logs import LOG_NAME
from runner.plan import Plan, build_engine, make_plan
from runner.results.bundle import check_bundle, write_bundle
from runner.results.check import check_run
from runner.run import RunOutcome, write_results

pytestmark = pytest.mark.anyio


CHILD = Path(__file__).resolve().parents[1] / "support" / "slow_run.py"


def one_at_a_time(tmp_path: Path, *ids: str, **how: Any) -> Plan:
    return plan_for(tmp_path, *ids, extra="[concurrency]\ntrajectories = 1\n", **how)


def cut_journal(run_dir: Path, lines: int, torn: bytes = b"") -> None:
    """Leave the journal's first lines and a torn one, as a process that was killed there would."""
    (run_dir / JOURNAL_NAME).write_bytes(b"".join(lines_of(run_dir)[:lines]) + torn)


async def test_a_killed_run_goes_on_to_the_results_of_one_that_was_not(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    whole = await start(tmp_path, plan, FakeEngine(solve), run_id="whole")
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 30)

    outcome = await go_on(run_dir, plan, FakeEngine(solve))

    assert (outcome.reason, outcome.exit_code) == (EndReason.COMPLETE, ExitCode.OK)
    assert comparable(outcome.results) == comparable(whole.results)
    assert len(outcome.results["timings"]["parts"]) == 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan, RunOutcome]:
    """A run that nothing disturbed, one trajectory after another."""
    import anyio  # noqa: PLC0415 - a fixture of a module has no loop of its own

    directory = tmp_path_factory.mktemp("whole")
    plan = one_at_a_time(directory, "p0", "p1", samples=1)
    outcome = anyio.run(lambda: start(directory, plan, FakeEngine(solve), run_id="whole"))
    return directory, plan, outcome


@pytest.mark.parametrize("lines", range(1, 12))
async def test_wherever_the_journal_ends_the_run_goes_on_to_the_same_results(
    tmp_path: Path, whole: tuple[Path, Plan, RunOutcome], lines: int
) -> None:
    _, plan, undisturbed = whole
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / JOURNAL_NAME).write_bytes(b"".join(lines_of(undisturbed.run_dir)[:lines]) + b'{"type":"tu')

    outcome = await go_on(run_dir, plan, FakeEngine(solve))

    assert comparable(outcome.results) == comparable(undisturbed.results)
    assert check_run(run_dir).differences == []


async def test_only_what_has_no_score_is_run_again(tmp_path: Path) -> None:
    plan = one_at_a_time(tmp_path, samples=1)
    await start(tmp_path, plan, FakeEngine(solve))
    run_dir = tmp_path / "results" / "run"
    first_two = 1 + 2 * 5
    cut_journal(run_dir, first_two + 2)
    before = lines_of(run_dir)

    engine = FakeEngine(solve)
    await go_on(run_dir, plan, engine)

    assert {request.key.problem_id for request in engine.requests} == {"p2", "p3"}
    assert lines_of(run_dir)[: len(before)] == before
    ends = Counter(one.key for one in read_journal(run_dir / JOURNAL_NAME) if isinstance(one, Terminated))
    assert ends == {TrajectoryKey("set", one, 0): 1 for one in IDS}


async def test_a_trajectory_cut_in_the_middle_starts_at_its_first_turn_with_its_seeds(tmp_path: Path) -> None:
    plan = one_at_a_time(tmp_path, "p0", samples=1)
    await start(tmp_path, plan, FakeEngine(solve))
    run_dir = tmp_path / "results" / "run"
    before = [one for one in read_journal(run_dir / JOURNAL_NAME) if isinstance(one, TurnDone)]
    cut_journal(run_dir, 4)

    engine = FakeEngine(solve)
    outcome = await go_on(run_dir, plan, engine)

    assert [(one.turn, one.seed, one.attempt) for one in engine.requests] == [
        (one.turn, one.seeds[0], 1) for one in before
    ]
    (record,) = outcome.results["datasets"]["set"]["trajectories"]
    assert (record["attempts"], len(record["react_steps"])) == (1, 2)
    assert outcome.results["datasets"]["set"]["infrastructure_retries"] == 0


async def test_the_journal_says_when_the_run_went_on_and_what_it_found(tmp_path: Path) -> None:
    plan = one_at_a_time(tmp_path, "p0", "p1", "p2", samples=1)
    await start(tmp_path, plan, FakeEngine(solve))
    run_dir = tmp_path / "results" / "run"
    cut_journal(run_dir, 1 + 5 + 3, torn=b'{"type":"turn","assist')
    lines = len(lines_of(run_dir)) - 1

    await go_on(run_dir, plan, FakeEngine(solve))

    resumed = list(read_journal(run_dir / JOURNAL_NAME))[lines]
    assert isinstance(resumed, RunResumed)
    found = resumed.resumed
    assert (found.part, found.missing, found.given_up, found.torn_bytes) == (2, 2, 0, 22)
    assert [(one.problem_id, one.turns) for one in found.cut] == [("p1", 2)]
    assert resumed.provenance is not None
    assert resumed.provenance.versions["python"]


async def test_a_resumed_run_and_its_bundle_verify(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 14)
    with (run_dir / JOURNAL_NAME).open("ab") as file:
        file.write(b'{"torn')
    await go_on(run_dir, plan, FakeEngine(solve))
    write_bundle(run_dir, tmp_path / "one.zip")

    assert check_run(run_dir).differences == []
    assert check_bundle(tmp_path / "one.zip").differences == []


def dead_for(problem_id: str) -> Callable[[GenerationRequest], str]:
    def say(request: GenerationRequest) -> str:
        if request.key.problem_id == problem_id:
            raise EngineUnavailableError("the engine is dead")
        return solve(request)

    return say


async def test_what_was_given_up_is_finished_by_a_resume_with_all_attempts_again(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "p0", "p1", samples=1)
    first = await start(tmp_path, plan, FakeEngine(dead_for("p1")))
    assert (first.reason, first.exit_code) == (EndReason.INCOMPLETE, ExitCode.INCOMPLETE)
    deaths = 2
    engine = FakeEngine(solve)

    def dies_twice(request: GenerationRequest) -> str:
        nonlocal deaths
        deaths -= 1
        if deaths >= 0:
            raise EngineUnavailableError("dead once more")
        return solve(request)

    engine.on_turn = dies_twice
    outcome = await go_on(first.run_dir, plan, engine)

    assert (outcome.reason, outcome.exit_code) == (EndReason.COMPLETE, ExitCode.OK)
    assert {one.key.problem_id for one in engine.requests} == {"p1"}
    assert outcome.results["datasets"]["set"]["unfinished"] == []
    assert outcome.results["datasets"]["set"]["infrastructure_retries"] == 4
    assert check_run(first.run_dir).differences == []


async def test_what_stays_unfinished_tells_its_cause_and_all_its_attempts(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "p0", "p1", samples=1)
    first = await start(tmp_path, plan, FakeEngine(dead_for("p1")))
    outcome = await go_on(first.run_dir, plan, FakeEngine(dead_for("p1")))

    (one,) = outcome.results["datasets"]["set"]["unfinished"]
    assert outcome.exit_code is ExitCode.INCOMPLETE
    assert (one["task_id"], one["attempts"]) == ("p1", 6)
    assert "the engine is dead" in one["cause"]
    assert outcome.results["complete"] is False


async def test_a_run_stopped_before_it_tries_again_still_says_why_it_gave_up(tmp_path: Path) -> None:
    plan = one_at_a_time(tmp_path, "p0", "p1", samples=1)
    first = await start(tmp_path, plan, FakeEngine(dead_for("p1")))
    before = len(lines_of(first.run_dir))
    await go_on(first.run_dir, plan, FakeEngine(solve))
    cut_journal(first.run_dir, before + 1)

    killed = write_results(first.run_dir)

    (one,) = killed.results["datasets"]["set"]["unfinished"]
    assert (one["attempts"], "the engine is dead" in one["cause"]) == (3, True)
    assert not read_state(first.run_dir / JOURNAL_NAME).all_tried


async def test_the_last_lines_of_the_log_stand_beside_what_is_unfinished(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "p0", samples=1)

    def write_log(event: Event) -> None:
        if event.type == "run_started":  # type: ignore[attr-defined]
            write_lines(tmp_path / "results" / "run" / LOG_NAME, [f"line {n}" for n in range(50)])

    outcome = await start(tmp_path, plan, FakeEngine(dead_for("p0")), listener=write_log)

    (one,) = outcome.results["datasets"]["set"]["unfinished"]
    assert one["log"] == [f'"line {n}"' for n in range(30, 50)]


async def test_several_parts_are_one_run_whose_pauses_are_no_work(tmp_path: Path) -> None:
    plan = one_at_a_time(tmp_path, samples=1)
    await start(tmp_path, plan, FakeEngine(solve))
    run_dir = tmp_path / "results" / "run"
    for lines in (8, 14, 21):
        cut_journal(run_dir, lines)
        await go_on(run_dir, plan, FakeEngine(solve))

    timings = write_results(run_dir).results["timings"]
    assert [one["resumed"] is None for one in timings["parts"]] == [True, False, False, False]
    assert timings["wall_s"] == pytest.approx(sum(one["wall_s"] for one in timings["parts"]), abs=0.01)
    gaps = [
        after["started_at"] - before["ended_at"]
        for before, after in zip(timings["parts"], timings["parts"][1:], strict=False)
    ]
    assert timings["paused_s"] == pytest.approx(sum(gaps), abs=0.01)


@pytest.mark.parametrize("lines_from_the_end", [0, 1])
async def test_a_run_that_lacks_only_its_end_gets_it_without_engine_or_sandbox(
    tmp_path: Path, lines_from_the_end: int
) -> None:
    plan = plan_for(tmp_path, "p0", samples=1)
    first = await start(tmp_path, plan, FakeEngine(solve))
    cut_journal(first.run_dir, len(lines_of(first.run_dir)) - lines_from_the_end)
    (first.run_dir / "evaluation_results.json").unlink()
    engine, sandbox = FakeEngine(solve), FakeSandbox()

    outcome = await go_on(first.run_dir, plan, engine, sandbox=sandbox)

    assert (outcome.reason, outcome.results["complete"]) == (EndReason.COMPLETE, True)
    assert (engine.started, sandbox.entered) == (0, 0)
    assert comparable(outcome.results) == comparable(first.results)
    assert check_run(first.run_dir).differences == []


async def test_an_end_that_is_added_leaves_the_log_of_before_alone(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, "p0", samples=1)
    first = await start(tmp_path, plan, FakeEngine(solve))
    cut_journal(first.run_dir, len(lines_of(first.run_dir)) - 1)
    (first.run_dir / LOG_NAME).write_text("of the first part")

    await go_on(first.run_dir, plan, FakeEngine(solve))

    assert (first.run_dir / "runner.part1.log").read_text() == "of the first part"


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    """A profile whose engine replays a script, for a run in a process of its own."""
    return write_scripted_profile(tmp_path, IDS)


def kill_after(profile: Path, turns: int) -> None:
    """Run a profile in a process of its own, and kill that once it told of so many turns."""
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(profile), str(profile.parent / "results"), "0.05"],
        cwd=CHILD.parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        for _ in range(turns):
            assert child.stdout.readline() == "turn\n"
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("turns", [1, 4, 9])
async def test_a_process_that_is_killed_loses_nothing_that_it_told(
    tmp_path: Path, scripted: Path, turns: int
) -> None:
    kill_after(scripted, turns)
    run_dir = tmp_path / "results" / "run"
    assert sum(isinstance(one, TurnDone) for one in read_journal(run_dir / JOURNAL_NAME)) >= turns
    plan = make_plan(str(scripted))

    outcome = await go_on(run_dir, plan, build_engine(plan), sandbox=FakeSandbox())

    whole = await start(tmp_path, plan, build_engine(plan), sandbox=FakeSandbox(), run_id="whole")
    assert outcome.exit_code is ExitCode.OK
    assert comparable(outcome.results)["datasets"] == comparable(whole.results)["datasets"]
    assert check_run(run_dir).differences == []


async def test_what_a_kill_left_half_written_is_gone_and_the_log_of_before_is_kept(tmp_path: Path) -> None:
    plan = plan_for(tmp_path)
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 14)
    (run_dir / "traces").mkdir(exist_ok=True)
    (run_dir / ".evaluation_results.json.a1b2c3_d").write_text("{")
    (run_dir / "traces" / ".set_0000_p0_sample00.md.abcdefgh").write_text("#")
    (run_dir / LOG_NAME).write_text("of the first part")

    await go_on(run_dir, plan, FakeEngine(solve))

    assert not list(run_dir.rglob(".*"))
    assert (run_dir / "runner.part1.log").read_text() == "of the first part"
    assert check_run(run_dir).differences == []


async def test_an_interrupted_part_says_so_although_all_was_tried_before(tmp_path: Path) -> None:
    plan = one_at_a_time(tmp_path, "p0", "p1", samples=1)
    first = await start(tmp_path, plan, FakeEngine(dead_for("p1")))

    def fail(_: GenerationRequest) -> str:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await go_on(first.run_dir, plan, FakeEngine(fail))

    results = json.loads((first.run_dir / "evaluation_results.json").read_bytes())
    assert (results["end"], results["complete"]) == ("failed", False)
    again = [one for one in read_journal(first.run_dir / JOURNAL_NAME) if isinstance(one, TrajectoryStarted)]
    assert again[-1].attempt == 1
