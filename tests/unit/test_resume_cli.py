"""What `eval` finds of runs that stopped, and what a resumed run is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.builders import answer, bash, write_profile
from support.fake_engine import FakeEngine
from support.stopping import go_on, lines_of, start, start_killed

from runner.cli.resuming import Asked, asked_again, find_resumable, find_unfinished, offer_lines
from runner.engines.base import EngineUnavailableError, GenerationRequest
from runner.errors import UserError
from runner.events import RunStarted
from runner.journal import JOURNAL_NAME, JournalWriter, read_journal
from runner.plan import Plan, make_plan

pytestmark = pytest.mark.anyio
ENGINE = {"kind": "openai", "model": "served", "base_urls": ["http://127.0.0.1:9/v1"]}


def profile_for(tmp_path: Path) -> str:
    problems = dict.fromkeys(("p0", "p1", "p2", "p3"), "42")
    return str(write_profile(tmp_path / "in", ENGINE, problems=problems))


def solve(request: GenerationRequest) -> str:
    return bash("echo 42") if request.turn == 0 else answer("42")


def started(run_dir: Path) -> RunStarted:
    first = next(iter(read_journal(run_dir / JOURNAL_NAME)))
    assert isinstance(first, RunStarted)
    return first


async def test_a_run_that_stopped_is_offered_with_the_command_that_goes_on(tmp_path: Path) -> None:
    plan = make_plan(profile_for(tmp_path))
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)

    (found,) = find_unfinished(tmp_path / "results", plan)
    (line,) = offer_lines([found])

    assert found.run_dir == run_dir
    assert line == (
        "run of this profile was killed with 4 of 4 trajectories missing;"
        f" to go on with it: recount eval --resume {run_dir}"
    )


async def test_a_run_with_trajectories_that_were_given_up_is_offered(tmp_path: Path) -> None:
    def dead_for_one(request: GenerationRequest) -> str:
        if request.key.problem_id == "p1":
            raise EngineUnavailableError("dead")
        return solve(request)

    plan = make_plan(profile_for(tmp_path))
    await start(tmp_path, plan, FakeEngine(dead_for_one))

    (line,) = offer_lines(find_unfinished(tmp_path / "results", plan))
    assert "ended incomplete with 1 of 4 trajectories missing" in line


async def test_what_is_complete_at_work_damaged_or_of_another_plan_is_not_offered(tmp_path: Path) -> None:
    plan = make_plan(profile_for(tmp_path))
    results = tmp_path / "results"
    whole = await start(tmp_path, plan, FakeEngine(solve), run_id="whole")
    (results / "damaged").mkdir()
    (results / "damaged" / JOURNAL_NAME).write_bytes(b'{"type":"invented"}\n')
    (results / "empty").mkdir()
    (results / "empty" / JOURNAL_NAME).touch()
    (results / "broken").mkdir()
    lines = lines_of(whole.run_dir)
    (results / "broken" / JOURNAL_NAME).write_bytes(b"".join([*lines[:3], b"{}\n", lines[4]]))
    assert find_unfinished(results, plan) == []

    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)
    assert len(find_unfinished(results, plan)) == 1
    assert find_unfinished(results, make_plan(profile_for(tmp_path), overrides={"samples": 2})) == []
    with JournalWriter(run_dir / JOURNAL_NAME):
        assert find_unfinished(results, plan) == []
    assert find_unfinished(tmp_path / "nowhere", plan) == []
    assert offer_lines([]) == []


def plan_of(asked: Asked) -> Plan:
    return make_plan(
        asked.profile,
        overrides=dict(asked.overrides),
        data=dict(asked.data),
        only=asked.only,
        limit=asked.limit,
    )


async def test_a_run_is_planned_again_from_its_journal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = profile_for(tmp_path)
    moved = tmp_path / "moved.jsonl"
    moved.write_bytes((tmp_path / "in" / "set.jsonl").read_bytes())
    overrides: dict[str, Any] = {"limits.max_turns": 3, "engine.base_urls": ["http://127.0.0.1:8/v1"]}
    plan = make_plan(
        str(Path(profile).relative_to(tmp_path)),
        overrides=overrides,
        data={"set": Path("moved.jsonl")},
        only=("set",),
        limit=3,
    )
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)
    monkeypatch.chdir("/")

    again = plan_of(asked_again(started(run_dir), None))

    assert again.profile == plan.profile
    assert again.datasets[0].problems == plan.datasets[0].problems
    assert again.datasets[0].path == moved
    assert dict(again.overrides) == {**plan.overrides, "data.set": str(moved)}
    outcome = await go_on(run_dir, again, FakeEngine(solve))
    assert outcome.results["complete"] is True


async def test_a_bundled_profile_is_asked_for_by_its_name(tmp_path: Path) -> None:
    plan = make_plan("demo", limit=2)
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 3)

    asked = asked_again(started(run_dir), None)

    assert (asked.profile, asked.limit, asked.data, asked.only) == ("demo", 2, {}, ())
    assert plan_of(asked).jobs == plan.jobs


async def test_what_is_given_now_comes_on_top_of_what_was_asked(tmp_path: Path) -> None:
    plan = make_plan(profile_for(tmp_path), overrides={"concurrency.tools": 2})
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)
    given = Asked("", {"concurrency.trajectories": 1}, {}, (), None)

    again = plan_of(asked_again(started(run_dir), given))

    assert (again.profile.concurrency.tools, again.profile.concurrency.trajectories) == (2, 1)


async def test_a_journal_that_does_not_say_what_was_asked_wants_it_named(tmp_path: Path) -> None:
    plan = make_plan(profile_for(tmp_path))
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)
    first = started(run_dir).model_copy(update={"command": None})
    given = Asked(profile_for(tmp_path), {}, {}, (), None)

    with pytest.raises(UserError, match="does not hold what the run was asked for"):
        asked_again(first, None)
    assert asked_again(first, given) == given


async def test_a_run_is_named_by_its_directory_or_its_id(tmp_path: Path) -> None:
    plan = make_plan(profile_for(tmp_path))
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)

    assert find_resumable("run", tmp_path / "results") == run_dir
    assert find_resumable(str(run_dir), tmp_path) == run_dir
    with pytest.raises(UserError, match="no run other"):
        find_resumable("other", tmp_path / "results")


async def test_what_was_asked_stands_in_the_journal_as_json(tmp_path: Path) -> None:
    plan = make_plan(profile_for(tmp_path), overrides={"samples": 2})
    run_dir = await start_killed(tmp_path, plan, FakeEngine(solve), 9)

    assert json.loads(lines_of(run_dir)[0])["command"] == {
        "profile": str(tmp_path / "in" / "profile.toml"),
        "overrides": {"samples": 2},
        "data": {},
        "only": [],
        "limit": None,
        "allow_unverified": False,
    }
