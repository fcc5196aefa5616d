"""The verdict's words: when each is said, and when none can be."""

import json
from dataclasses import replace

import numpy as np
import pytest
from verdict_samples import (
    PUBLISHED,
    Scores,
    as_published,
    by_name,
    problem_ids,
    published_rows,
    published_scores,
    runs,
)

from runner.verdict import (
    RunScores,
    Verdict,
    VerdictSettings,
    Word,
    headline,
    judge,
    verdict_lines,
)
from runner.verdict.model import Basis, Method, VarianceSource
from runner.verdict.rows import PublishedRows
from runner.verdict.text import TEXT_WIDTH

ROWS = published_rows()


def lowered(scores: Scores, points: float) -> Scores:
    """Turn so many right samples wrong that the mean falls by `points`, spread over unsure problems first."""
    changed = scores.copy()
    places = [(i, j) for i, j in np.argwhere(changed == 1.0)]
    places.sort(key=lambda place: (scores[place[0]].sum(), place[1]))
    for i, j in places[: round(points * scores.size)]:
        changed[i, j] = 0.0
    return changed


def text(verdict: Verdict) -> str:
    return " ".join(" ".join(verdict_lines(verdict)).split())


# The three words.


@pytest.mark.parametrize("rows", [ROWS, None], ids=["rows", "no rows"])
def test_a_run_like_the_report_is_reproduced_and_aime_alone_cannot_tell(rows: PublishedRows | None) -> None:
    verdict = judge("final4", runs(as_published()), PUBLISHED, rows)

    assert verdict.word is Word.REPRODUCED
    assert by_name(verdict)["dapo"].word is Word.REPRODUCED
    assert by_name(verdict)["aime"].word is Word.CANNOT_TELL
    assert not verdict.differs


def test_rows_ten_points_lower_on_dapo_differ() -> None:
    scores = as_published()
    scores["dapo"] = lowered(scores["dapo"], 0.10)

    verdict = judge("final4", runs(scores), PUBLISHED, ROWS)

    dapo = by_name(verdict)["dapo"]
    assert dapo.word is Word.DIFFERS
    assert dapo.if_wrong is not None
    assert dapo.if_wrong.difference == pytest.approx(-0.10)
    assert dapo.if_wrong.method is Method.PERMUTATION
    assert "10 points below the published mean, p < 0.001 after Holm" in dapo.why
    assert verdict.differs


def test_rows_ten_points_lower_on_dapo_differ_without_published_rows() -> None:
    scores = as_published()
    scores["dapo"] = lowered(scores["dapo"], 0.10)

    assert by_name(judge("final4", runs(scores), PUBLISHED))["dapo"].word is Word.DIFFERS


def test_cannot_tell_says_what_it_could_have_seen_and_what_would_decide() -> None:
    aime = by_name(judge("final4", runs(as_published()), PUBLISHED, ROWS))["aime"]

    assert aime.reach is not None
    assert 0.10 < aime.reach.smallest_difference < 0.20
    assert aime.reach.samples_of_run is None
    assert 20 < aime.reach.samples_of_both < 60


def test_a_difference_that_is_there_but_within_the_margin_is_reproduced_and_said() -> None:
    """With enough samples a small difference is certain, and still small."""
    ids = [f"dapo_{index:03d}" for index in range(100)]
    published = dict.fromkeys(ids, (1.0, 1.0, 1.0, 0.0) * 25)
    rows = PublishedRows("final4", 100, {"dapo": published}, {"dapo": "$"})
    run = RunScores("dapo", 100, dict.fromkeys(ids, (1.0,) * 73 + (0.0,) * 27))
    figures = {"dapo": replace(PUBLISHED.reports["final4"].figures["dapo"], mean=0.75)}
    report = replace(PUBLISHED.reports["final4"], samples=100, figures=figures)
    made_up = replace(
        PUBLISHED, problems={"dapo": 100}, reports={"final4": report}, references={"final4": ("final4",)}
    )

    dapo = by_name(judge("final4", [run], made_up, rows))["dapo"]

    assert dapo.word is Word.REPRODUCED
    # sqrt(2 * 0.74 * 0.26 / 10,000) is 0.0062: two points are 3.2 standard errors.
    assert "a smaller difference is there (p = 0.0013)" in dapo.why


def test_a_wider_margin_lets_aime_be_reproduced() -> None:
    verdict = judge("final4", runs(as_published()), PUBLISHED, ROWS, settings=VerdictSettings(margin=0.15))

    assert by_name(verdict)["aime"].word is Word.REPRODUCED


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1])
def test_a_margin_that_gives_a_word_to_everything_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        VerdictSettings(margin=margin)


def test_pooled_counts_every_problem_once() -> None:
    pooled = judge("final4", runs(as_published()), PUBLISHED, ROWS).pooled

    assert pooled is not None
    assert pooled.if_wrong is not None
    assert pooled.if_wrong.problems == 130
    assert pooled.if_wrong.published_mean == pytest.approx((100 * 0.7675 + 30 * 0.7083333333333334) / 130)


def test_holm_adjusts_the_data_sets_and_not_the_headline() -> None:
    scores = as_published()
    scores["dapo"] = lowered(scores["dapo"], 0.03)
    verdict = judge("final4", runs(scores), PUBLISHED, ROWS)
    dapo, pooled = by_name(verdict)["dapo"].if_wrong, verdict.pooled.if_wrong if verdict.pooled else None

    assert dapo is not None
    assert pooled is not None
    assert dapo.p_adjusted == pytest.approx(2 * dapo.p)
    assert pooled.p_adjusted == pooled.p


def test_a_difference_that_only_one_test_would_find_is_not_called_one() -> None:
    """p = 0.03 in AIME is nothing special among two data sets."""
    scores = as_published()
    changes = [lowered(scores["aime"], points) for points in np.arange(0.02, 0.20, 1 / 120)]
    verdicts = [judge("final4", runs({**scores, "aime": one}), PUBLISHED, ROWS) for one in changes]
    found = [by_name(verdict)["aime"] for verdict in verdicts]

    between = [one for one in found if one.if_wrong is not None and 0.025 < one.if_wrong.p < 0.05]
    assert between
    assert all(one.word is Word.CANNOT_TELL for one in between)


def test_reach_of_a_data_set_holds_whatever_the_other_shows() -> None:
    verdict = judge("final4", runs(as_published()), PUBLISHED, ROWS)
    aime, pooled = by_name(verdict)["aime"], verdict.pooled

    assert aime.reach is not None
    assert aime.if_wrong is not None
    assert pooled is not None
    assert pooled.reach is not None
    assert pooled.if_wrong is not None
    assert aime.reach.smallest_difference / aime.if_wrong.standard_error == pytest.approx(3.083, abs=1e-3)
    assert pooled.reach.smallest_difference / pooled.if_wrong.standard_error == pytest.approx(2.802, abs=1e-3)


# One sample a problem.


def test_interval25_is_held_against_six_samples_a_problem_and_shows_the_single_points() -> None:
    verdict = judge("interval25", runs(as_published(1)), PUBLISHED, ROWS)
    dapo = by_name(verdict)["dapo"]

    assert dapo.if_wrong is not None
    assert dapo.if_wrong.published_samples == 6
    assert dapo.if_wrong.published_mean == pytest.approx((4 * 0.7675 + 0.76 + 0.82) / 6)
    assert [point.mean for point in dapo.points] == [0.7675, 0.76, 0.82]
    assert dapo.if_wrong.run_variance is VarianceSource.OTHER_SIDE
    assert "interval25 0.7600 (1 sample)" in text(verdict)
    assert dapo.solved == ()


def test_one_sample_and_no_rows_names_its_variance_as_assumed() -> None:
    verdict = judge("interval25", runs(as_published(1)), PUBLISHED)
    dapo = by_name(verdict)["dapo"].if_wrong

    assert dapo is not None
    assert dapo.run_variance is VarianceSource.ASSUMED
    assert dapo.standard_error == pytest.approx(np.sqrt(0.0535 / 100 * (1 + 1 / 6)), abs=1e-4)
    assert "assumed: Beta fit" in text(verdict)


def test_one_sample_against_a_single_published_number_cannot_be_compared() -> None:
    report = PUBLISHED.reports["interval25"]
    alone = replace(PUBLISHED, references={"interval25": (report.name,)})

    verdict = judge("interval25", runs(as_published(1)), alone)

    assert verdict.pooled is None
    assert verdict.word is None
    assert "nothing published tells the variance" in by_name(verdict)["dapo"].why


# What is missing.


def with_unfinished(run: RunScores, count: int) -> RunScores:
    scores = {name: list(one) for name, one in run.scores.items()}
    for name in list(scores)[:count]:
        scores[name][0] = None
    return replace(run, scores={name: tuple(one) for name, one in scores.items()})


def test_a_few_unfinished_trajectories_leave_the_word_if_both_ways_agree() -> None:
    dapo, aime = runs(as_published())

    verdict = judge("final4", [with_unfinished(dapo, 2), aime], PUBLISHED, ROWS)

    judged = by_name(verdict)["dapo"]
    assert judged.unfinished == 2
    assert judged.word is Word.REPRODUCED
    assert judged.if_wrong is not None
    assert judged.if_right is not None
    assert judged.if_right.run_mean - judged.if_wrong.run_mean == pytest.approx(2 / 400)


def test_unfinished_trajectories_that_decide_leave_no_word() -> None:
    dapo, aime = runs(as_published())

    judged = by_name(judge("final4", [with_unfinished(dapo, 30), aime], PUBLISHED, ROWS))["dapo"]

    assert judged.word is Word.CANNOT_TELL
    assert "30 trajectories without a score: all wrong would be differs" in judged.why
    assert judged.solved == ()


def test_differs_both_ways_but_on_opposite_sides_is_no_difference() -> None:
    nothing = RunScores("dapo", 4, dict.fromkeys(problem_ids()["dapo"], (None, None, 1.0, 1.0)))
    aime = runs(as_published())[1]

    judged = by_name(judge("final4", [nothing, aime], PUBLISHED, ROWS))["dapo"]

    assert judged.if_wrong is not None
    assert judged.if_right is not None
    assert judged.if_wrong.p_adjusted < 0.05
    assert judged.if_right.p_adjusted < 0.05
    assert judged.word is Word.CANNOT_TELL


def test_a_run_without_any_score_has_no_word() -> None:
    empty = [
        RunScores(name, 4, dict.fromkeys(ids, (None, None, None, None)))
        for name, ids in problem_ids().items()
    ]

    assert judge("final4", empty, PUBLISHED, ROWS).word is Word.CANNOT_TELL


def test_a_missing_data_set_is_said_and_the_rest_compared() -> None:
    verdict = judge("final4", runs(as_published())[:1], PUBLISHED, ROWS)

    assert verdict.word is Word.REPRODUCED
    assert "aime is published and not part of this run" in verdict.notes
    assert verdict.pooled is not None
    assert "over 100 of the 130 published problems" in verdict.pooled.notes
    dapo = by_name(verdict)["dapo"].if_wrong
    assert dapo is not None
    assert dapo.p_adjusted == dapo.p


def test_a_part_of_the_problems_is_compared_with_the_same_of_the_rows() -> None:
    first = {
        name: scores[90:] if name == "dapo" else scores[:5] for name, scores in published_scores().items()
    }
    run = [
        RunScores(
            "dapo", 4, {f"dapo_{90 + i:03d}": tuple(map(float, row)) for i, row in enumerate(first["dapo"])}
        ),
        RunScores(
            "aime", 4, {f"aime_{i:03d}": tuple(map(float, row)) for i, row in enumerate(first["aime"])}
        ),
    ]

    dapo = by_name(judge("final4", run, PUBLISHED, ROWS))["dapo"]

    assert dapo.if_wrong is not None
    assert dapo.if_wrong.problems == 10
    assert dapo.if_wrong.published_mean == pytest.approx(float(first["dapo"].mean()))
    assert dapo.if_wrong.difference == pytest.approx(0.0)
    assert (
        "only the 10 problems that both sides have are compared, of 100 published and 10 planned"
        in dapo.notes
    )


def test_a_part_of_the_problems_without_rows_cannot_be_compared() -> None:
    part = replace(runs(as_published())[0], scores=dict(list(runs(as_published())[0].scores.items())[:5]))

    verdict = judge("final4", [part], PUBLISHED)

    assert verdict.pooled is None
    assert verdict.word is None
    assert "cannot be held against 5 of them" in by_name(verdict)["dapo"].why
    assert headline(verdict).startswith("no verdict")


def test_problems_that_the_rows_do_not_have_are_left_out() -> None:
    run = runs(as_published())[0]
    more = replace(run, scores={**run.scores, "of_my_own": (1.0, 1.0, 1.0, 1.0)})

    dapo = by_name(judge("final4", [more], PUBLISHED, ROWS))["dapo"]

    assert dapo.if_wrong is not None
    assert dapo.if_wrong.problems == 100
    assert any("101 planned" in note for note in dapo.notes)


def test_rows_of_other_problems_are_not_compared() -> None:
    other = RunScores("dapo", 4, {"another": (1.0, 1.0, 1.0, 1.0)})

    assert "no problem in common" in by_name(judge("final4", [other], PUBLISHED, ROWS))["dapo"].why


def test_a_profile_nothing_is_published_for_has_no_verdict() -> None:
    verdict = judge("demo", [RunScores("demo", 1, {"p": (1.0,)})], PUBLISHED)

    assert verdict.word is None
    assert verdict.pooled is None
    json.dumps(verdict.as_document(), allow_nan=False)


def test_problems_that_all_agree_are_no_certainty() -> None:
    """Three problems that both sides always solve: no variance seen, and still hardly anything known."""
    ids = [name for name, scores in ROWS.scores["dapo"].items() if min(scores) == 1.0][:3]
    run = RunScores("dapo", 4, dict.fromkeys(ids, (1.0, 1.0, 1.0, 1.0)))

    verdict = judge("final4", [run], PUBLISHED, ROWS)

    assert verdict.pooled is not None
    assert verdict.pooled.if_wrong is not None
    assert verdict.pooled.if_wrong.difference == 0.0
    assert verdict.pooled.if_wrong.p == 1.0
    assert verdict.word is Word.CANNOT_TELL


# max@k and pass@k.


def test_max_at_4_is_shown_with_the_range_of_equal_runs_and_decides_nothing() -> None:
    dapo = by_name(judge("final4", runs(as_published()), PUBLISHED, ROWS))["dapo"]

    names = [figure.name for figure in dapo.solved]
    assert names == ["pass@2", "pass@3", "max@4"]
    best = dapo.solved[-1]
    assert best.run == best.published == pytest.approx(0.86)
    assert best.basis is Basis.PERMUTATION
    assert best.interval[0] <= 0.86


def test_without_rows_max_at_4_has_the_range_of_this_run_s_posterior() -> None:
    aime = by_name(judge("final4", runs(as_published()), PUBLISHED))["aime"]
    best = aime.solved[-1]

    assert best.basis is Basis.POSTERIOR
    assert best.published == pytest.approx(29 / 30)
    assert best.interval[0] <= 29 / 30 <= best.interval[1]
    assert aime.solved[0].published is None


# What forbids the word.


def test_a_deviation_takes_the_word_away_and_keeps_the_numbers() -> None:
    verdict = judge(
        "final4",
        runs(as_published()),
        PUBLISHED,
        ROWS,
        forbidden=("temperature is 0.7 instead of 1.0",),
        notes=("template unpinned",),
    )

    assert verdict.word is None
    assert headline(verdict).startswith("no reproduction, because temperature is 0.7 instead of 1.0")
    assert "by the numbers alone: reproduced" in headline(verdict)
    assert "template unpinned" in text(verdict)
    document = verdict.as_document()
    assert document["word"] is None
    assert document["word_by_numbers"] == "reproduced"


def test_text_from_files_is_cleaned() -> None:
    verdict = judge("final4", runs(as_published()), PUBLISHED, ROWS, forbidden=("\x1b[2Jgone",))

    assert "\x1b" not in "".join(verdict_lines(verdict))


# Documents and lines.


@pytest.mark.parametrize("rows", [ROWS, None], ids=["rows", "no rows"])
@pytest.mark.parametrize("profile", ["final4", "interval25"])
def test_a_verdict_is_json_without_nan_and_lines_within_the_width(
    profile: str, rows: PublishedRows | None
) -> None:
    samples = PUBLISHED.reports[profile].samples
    dapo, aime = runs(as_published(samples))
    verdict = judge(profile, [with_unfinished(dapo, 7), aime], PUBLISHED, rows)

    document = json.loads(json.dumps(verdict.as_document(), allow_nan=False))

    assert set(document["datasets"]) == {"dapo", "aime"}
    assert document["datasets"]["dapo"]["comparison"] is None
    assert document["datasets"]["dapo"]["comparison_if_unfinished_wrong"]["problems"] == 100
    assert document["datasets"]["aime"]["comparison"]["method"]
    assert max(len(line) for line in verdict_lines(verdict)) <= TEXT_WIDTH


def test_the_lines_show_both_numbers_with_their_errors_and_the_word() -> None:
    shown = text(judge("final4", runs(as_published()), PUBLISHED, ROWS))

    assert "verdict: reproduced: this run 0.7538 ±0." in shown
    assert "dapo 0.7675 ±0." in shown
    assert "cannot tell" in shown
    assert "with the published rows" in shown


def test_scores_have_to_be_planned_rows() -> None:
    with pytest.raises(ValueError, match="2 scores for 4 samples"):
        RunScores("dapo", 4, {"p": (1.0, 0.0)})
    with pytest.raises(ValueError, match="a score of nan"):
        RunScores("dapo", 1, {"p": (float("nan"),)})


def test_rows_are_put_by_problem_and_sample_and_what_is_missing_is_none() -> None:
    run = RunScores.of_rows("dapo", 2, ["a", "b"], [("b", 1, 1.0), ("a", 0, 0.0)])

    assert run.scores == {"a": (0.0, None), "b": (None, 1.0)}
    assert run.unfinished == 2
