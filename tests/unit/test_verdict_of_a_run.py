"""The verdict of a run: from figures, rows and scores in its journal, and from nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.final4_like import (
    PROBLEMS,
    SAMPLES,
    artifacts_of,
    as_published,
    lost_now_and_then,
    never,
    plan_of,
    run_of,
    write_inputs,
)

from runner.errors import UserError
from runner.plan import make_plan
from runner.profile import load_profile
from runner.run import write_results

pytestmark = pytest.mark.anyio
VLLM = {"engine": {"kind": "vllm", "model": "m"}}


async def test_a_run_that_scores_as_published_is_reproduced_and_says_so_last(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in"))

    assert (outcome.verdict_word, outcome.differs) == ("reproduced", False)
    verdict = outcome.results["verdict"]
    assert verdict["published_rows"] is True
    assert verdict["pooled"]["comparison"]["difference"] == 0.0
    assert verdict["datasets"]["dapo"]["comparison"]["method"] == "exact permutation within problems"
    summary = (outcome.run_dir / "summary.txt").read_text(encoding="utf-8")
    assert "verdict: reproduced" in summary
    assert summary.index("complete after") < summary.index("verdict: reproduced")


async def test_a_run_that_solves_nothing_differs(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in"), never)

    assert (outcome.verdict_word, outcome.differs) == ("differs", True)
    assert int(outcome.exit_code) == 0


async def test_without_the_rows_the_published_means_are_held_against_and_the_reason_is_told(
    tmp_path: Path,
) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in", rows=False))

    verdict = outcome.results["verdict"]
    assert (verdict["published_rows"], verdict["word"]) == (False, "reproduced")
    assert "the published rows were not fetched" in verdict["notes"]
    told = outcome.results["provenance"]
    assert told["hashes"]["published_rows"] is None
    assert told["not_told"]["hashes.published_rows"] == "the published rows were not fetched"


async def test_rows_that_contradict_the_figures_are_refused_and_the_run_goes_on_without(
    tmp_path: Path,
) -> None:
    profile = write_inputs(tmp_path / "in")
    rows = tmp_path / "in" / "rows.json"
    rows.write_text(rows.read_text().replace('"score": 0.0', '"score": 1.0', 1), encoding="utf-8")
    plan = make_plan(str(profile), published_rows=rows)

    assert plan.comparison is not None
    assert plan.comparison.rows is None
    assert "refused: rows.json: dapo: the mean" in plan.comparison.no_rows_because
    assert any("were refused" in line for line in plan.expectation_lines())


async def test_a_changed_margin_is_a_setting_and_another_word(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in", margin=0.01))

    assert outcome.verdict_word == "cannot tell"
    assert outcome.results["verdict"]["settings"]["margin"] == 0.01


async def test_changed_settings_and_unverified_files_forbid_the_word_and_keep_the_numbers(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "in"
    artifacts = artifacts_of(directory, unverified=("model.safetensors: SHA-256 of another",))
    plan = plan_of(directory, overrides={"limits.max_turns": 3}, artifacts=artifacts)
    outcome = await run_of(tmp_path, plan)

    assert outcome.verdict_word is None
    assert outcome.results["reproduction"] is False
    assert outcome.results["verdict"]["word_by_numbers"] == "reproduced"
    assert outcome.results["verdict"]["no_reproduction_because"] == [
        "changed: limits.max_turns = 3",
        "unverified: model.safetensors: SHA-256 of another",
    ]
    assert "no reproduction, because changed: limits.max_turns = 3; unverified" in " ".join(
        (outcome.run_dir / "summary.txt").read_text(encoding="utf-8").split()
    )


async def test_unpinned_files_are_a_note_and_forbid_nothing(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "in", artifacts=artifacts_of(tmp_path / "in"))
    outcome = await run_of(tmp_path, plan)

    assert outcome.verdict_word == "reproduced"
    assert outcome.results["notes"] == ["unpinned, for want of a published hash: config.json"]
    assert outcome.results["verdict"]["notes"] == outcome.results["notes"]


def test_a_checkpoint_that_is_served_here_and_was_never_hashed_forbids_the_word(tmp_path: Path) -> None:
    profile = write_inputs(tmp_path)
    served = make_plan(str(profile), overrides=VLLM)
    hashed = make_plan(str(profile), overrides=VLLM, artifacts=artifacts_of(tmp_path))

    assert "unverified: no hash of the checkpoint was taken before the run" in served.deviations
    assert not any("hash" in one for one in hashed.deviations)


async def test_unfinished_trajectories_are_judged_both_ways(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in"), lost_now_and_then)

    pooled = outcome.results["verdict"]["pooled"]
    assert pooled["unfinished"] == len(PROBLEMS) * SAMPLES
    assert pooled["comparison"] is None
    wrong, right = (pooled[f"comparison_if_unfinished_{one}"] for one in ("wrong", "right"))
    assert wrong["run_mean"] < right["run_mean"]


async def test_a_profile_without_published_figures_has_no_verdict_and_says_why(tmp_path: Path) -> None:
    profile = write_inputs(tmp_path / "in")
    text = profile.read_text(encoding="utf-8")
    profile.write_text(text.partition("[verdict]")[0], encoding="utf-8")
    plan = make_plan(str(profile))
    outcome = await run_of(tmp_path, plan)

    assert plan.expectation_lines() == []
    assert outcome.results["verdict"] is None
    assert outcome.results["no_verdict_because"] == "the profile names no published figures"
    assert (outcome.verdict_word, outcome.differs) == (None, False)
    assert "no verdict: the profile names" in (outcome.run_dir / "summary.txt").read_text(encoding="utf-8")


async def test_the_verdict_needs_no_file_but_the_journal(tmp_path: Path) -> None:
    outcome = await run_of(tmp_path, plan_of(tmp_path / "in"))
    for path in (tmp_path / "in").iterdir():
        path.unlink()

    assert write_results(outcome.run_dir).results == outcome.results


def test_what_a_run_will_be_able_to_tell_is_known_before_it(tmp_path: Path) -> None:
    lines = plan_of(tmp_path).expectation_lines()

    assert lines[0] == "what this run will be able to tell"
    assert "variance within problems from published rows" in lines[-1]


async def test_a_part_of_the_problems_is_compared_by_their_own_rows(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "in", limit=4)
    assert plan.comparison is not None
    assert plan.comparison.rows is not None
    outcome = await run_of(tmp_path, plan, as_published)

    pooled = outcome.results["verdict"]["pooled"]
    assert pooled["planned_problems"] == 2 * 4
    assert pooled["comparison"]["difference"] == 0.0
    assert outcome.results["verdict"]["no_reproduction_because"] == ["changed: limit = 4"]


@pytest.mark.parametrize(("profile", "held"), [("final4", True), ("interval25", True), ("demo", False)])
def test_the_report_s_profiles_name_published_figures_and_the_demo_none(profile: str, held: bool) -> None:
    section = load_profile(profile).verdict

    assert (section is not None) is held
    if section is not None:
        assert (section.published, section.margin) == ("bundled:qwen35-4b-math-react", 0.05)


def test_published_figures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    profile = write_inputs(tmp_path)
    (tmp_path / "published.json").write_text("{}", encoding="utf-8")

    with pytest.raises(UserError, match=r"published\.json: checkpoint"):
        make_plan(str(profile))


def test_statistics_are_not_imported_for_a_run_without_a_verdict() -> None:
    code = "import sys; import runner.cli; from runner.plan import make_plan; make_plan('demo')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit('scipy' in sys.modules)"], check=False, timeout=60
    )

    assert done.returncode == 0
