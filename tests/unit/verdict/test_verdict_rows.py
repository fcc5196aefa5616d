"""Published rows: plausible layouts are read, and what cannot be trusted is refused, naming the place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from verdict_samples import PUBLISHED, problem_ids, published_scores, row_dicts, summaries

from runner.errors import UserError
from runner.verdict import read_published_rows
from runner.verdict.rows import rows_of_document
from runner.verdict.rows_walk import BrokenRowsError

Layout = Callable[[], Any]


def everything() -> list[dict[str, Any]]:
    return [row for name, scores in published_scores().items() for row in row_dicts(name, scores)]


def top_level_list() -> Any:
    return everything()


def by_dataset_and_rows() -> Any:
    return {name: {"rows": row_dicts(name, scores)} for name, scores in published_scores().items()}


def by_dataset_a_list() -> Any:
    return {name: row_dicts(name, scores) for name, scores in published_scores().items()}


def trajectories_with_rewards() -> Any:
    return {
        "results": [
            {"dataset": name, "trajectories": [_renamed(row) for row in row_dicts(name, scores)]}
            for name, scores in published_scores().items()
        ]
    }


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {"problem_id": row["task_id"], "sample_idx": row["sample_index"], "reward": int(row["score"])}


def one_list_a_sample() -> Any:
    return {
        name: {
            "samples": [
                [
                    {"task_id": f"{name}_{index:03d}", "correct": bool(row[sample])}
                    for index, row in enumerate(scores)
                ]
                for sample in range(4)
            ]
        }
        for name, scores in published_scores().items()
    }


def one_key_a_sample() -> Any:
    return {
        f"{name}.jsonl": {
            f"sample_{sample}": [
                {"id": f"{name}_{index:03d}", "score": row[sample]} for index, row in enumerate(scores)
            ]
            for sample in range(4)
        }
        for name, scores in published_scores().items()
    }


def one_object_a_problem() -> Any:
    return {
        name: [
            {"task_id": f"{name}_{index:03d}", "rollouts": [{"score": score} for score in row]}
            for index, row in enumerate(scores)
        ]
        for name, scores in published_scores().items()
    }


def mean_and_rollouts_of_a_problem() -> Any:
    return {
        name: [
            {
                "task_id": f"{name}_{index:03d}",
                "score": float(row.mean()),
                "rollouts": [{"score": score, "sample": sample} for sample, score in enumerate(row)],
            }
            for index, row in enumerate(scores)
        ]
        for name, scores in published_scores().items()
    }


def scores_of_a_problem() -> Any:
    return {
        name: [{"task_id": f"{name}_{index:03d}", "scores": list(row)} for index, row in enumerate(scores)]
        for name, scores in published_scores().items()
    }


def lists_of_data_sets_without_numbers() -> Any:
    return {
        "evaluations": [
            {
                "dataset": name,
                "rows": [{"task_id": r["task_id"], "score": r["score"]} for r in row_dicts(name, scores)],
            }
            for name, scores in published_scores().items()
        ]
    }


def rows_with_their_task() -> Any:
    return {
        name: [
            {
                "task": {"id": row["task_id"], "question": "…"},
                "sample_index": row["sample_index"],
                "score": row["score"],
            }
            for row in row_dicts(name, scores)
        ]
        for name, scores in published_scores().items()
    }


def keyed_by_problem_and_sample() -> Any:
    return {
        name: {
            f"{name}_{index:03d}:sample{sample:02d}": {"score": score}
            for index, row in enumerate(scores)
            for sample, score in enumerate(row)
        }
        for name, scores in published_scores().items()
    }


def key_alone() -> Any:
    return [{"key": row["key"], "score": row["score"]} for row in everything()]


def dataset_as_a_field() -> Any:
    return [
        {"dataset": name, "id": index, "sample_index": sample, "score": score}
        for name, scores in published_scores().items()
        for index, row in enumerate(scores)
        for sample, score in enumerate(row)
    ]


def without_sample_numbers() -> Any:
    return [{"task_id": row["task_id"], "score": row["score"]} for row in everything()]


def the_same_rows_twice() -> Any:
    return {"all": everything(), **by_dataset_and_rows()}


def with_an_earlier_evaluation() -> Any:
    """A training history: one sample before, training rows of other problems, the final evaluation."""
    before = {name: 1.0 - scores[:, :1] for name, scores in published_scores().items()}
    training = [{"task_id": "train_1", "sample_index": 0, "score": 1.0}]
    return [
        {"config": {"seed": 1}},
        {"generation": -1, **summaries(before)},
        {"generation": 24, "samples": [{"seed": 3, "result": {"scores": training}}]},
        {"generation": 25, "final_eval": True, **summaries()},
    ]


LAYOUTS: tuple[Layout, ...] = (
    summaries,
    top_level_list,
    by_dataset_and_rows,
    by_dataset_a_list,
    trajectories_with_rewards,
    one_list_a_sample,
    one_key_a_sample,
    one_object_a_problem,
    mean_and_rollouts_of_a_problem,
    scores_of_a_problem,
    lists_of_data_sets_without_numbers,
    rows_with_their_task,
    keyed_by_problem_and_sample,
    key_alone,
    the_same_rows_twice,
    with_an_earlier_evaluation,
)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("at_hand", [True, False], ids=["with the data sets", "without"])
def test_a_plausible_layout_is_read(layout: Layout, at_hand: bool) -> None:
    document = json.loads(json.dumps(layout()))

    rows = rows_of_document(document, PUBLISHED, problem_ids() if at_hand else None)

    assert rows.report == "final4"
    for name, scores in published_scores().items():
        expected = {f"{name}_{index:03d}": tuple(row) for index, row in enumerate(scores)}
        assert rows.scores[name] == expected


def test_a_data_set_may_be_named_by_a_field_alone() -> None:
    rows = rows_of_document(dataset_as_a_field(), PUBLISHED)

    assert rows.scores["aime"]["7"] == tuple(published_scores()["aime"][7])


def test_rows_without_sample_numbers_are_put_in_their_order() -> None:
    rows = rows_of_document(sorted(without_sample_numbers(), key=lambda row: -row["score"]), PUBLISHED)

    assert {name: len(scores) for name, scores in rows.scores.items()} == {"dapo": 100, "aime": 30}
    assert all(sorted(one, reverse=True) == list(one) for one in rows.scores["dapo"].values())


def test_rows_that_say_only_their_index_are_named_by_the_data_set() -> None:
    document = {
        name: [
            {"row_index": index, "sample_index": sample, "score": score}
            for index, row in enumerate(scores)
            for sample, score in enumerate(row)
        ]
        for name, scores in published_scores().items()
    }

    rows = rows_of_document(document, PUBLISHED, problem_ids())

    assert rows.scores["dapo"]["dapo_003"] == tuple(published_scores()["dapo"][3])
    with pytest.raises(BrokenRowsError, match=r"\$\.dapo\[0\] says only its row index"):
        rows_of_document(document, PUBLISHED)


def test_the_place_of_the_rows_is_kept() -> None:
    rows = rows_of_document(with_an_earlier_evaluation(), PUBLISHED)

    assert rows.places == {"dapo": "$[3].dapo_eval.scores", "aime": "$[3].aime_eval.scores"}


def test_a_score_below_zero_counts_as_zero_as_in_the_report_s_summary() -> None:
    document = summaries()
    row = next(row for row in document["dapo_eval"]["scores"] if row["score"] == 0.0)
    row["score"] = -1.0

    assert rows_of_document(document, PUBLISHED).scores["dapo"][row["task_id"]][row["sample_index"]] == 0.0


# Broken or ambiguous files.


def broken(change: Callable[[dict[str, Any]], None]) -> Any:
    document = summaries()
    change(document)
    return document


def set_in_row(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["dapo_eval"]["scores"][17][field] = value

    return change


def drop_in_row(field: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        del document["dapo_eval"]["scores"][17][field]

    return change


def drop_row(document: dict[str, Any]) -> None:
    del document["dapo_eval"]["scores"][17]


def drop_problem(document: dict[str, Any]) -> None:
    del document["aime_eval"]["scores"][:4]


def drop_dataset(document: dict[str, Any]) -> None:
    del document["aime_eval"]


def flip_score(document: dict[str, Any]) -> None:
    row = document["dapo_eval"]["scores"][17]
    row["score"] = 1.0 - row["score"]


def swap_samples(document: dict[str, Any]) -> None:
    for row in document["dapo_eval"]["scores"]:
        row["sample_index"] = (row["sample_index"] + 1) % 4
        row["key"] = f"{row['task_id']}:sample{row['sample_index']:02d}"


def contradict(document: dict[str, Any]) -> None:
    row = dict(document["dapo_eval"]["scores"][17])
    row["score"] = 1.0 - row["score"]
    document["dapo_eval"]["scores"].append(row)


def other_terminations(document: dict[str, Any]) -> None:
    for row in document["aime_eval"]["scores"]:
        row["termination_reason"] = "final_answer"


def stray_list_element(document: dict[str, Any]) -> None:
    document["dapo_eval"]["scores"][17] = "…"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_in_row("score"), r"\$\.dapo_eval\.scores\[17\] has no score"),
        (set_in_row("score", None), r"\$\.dapo_eval\.scores\[17\]\.score is no number but 'None'"),
        (set_in_row("score", "1.0"), r"\$\.dapo_eval\.scores\[17\]\.score is no number but '1\.0'"),
        (set_in_row("score", 77.0), r"\$\.dapo_eval\.scores\[17\]\.score is 77\.0, no score"),
        (set_in_row("correct", False), r"\$\.dapo_eval\.scores\[17\] has two scores: score 1, correct 0"),
        (set_in_row("task_id", "other"), r"\$\.dapo_eval\.scores\[17\] names two problems"),
        (set_in_row("dataset", "aime"), r"scores\[17\] stands below dapo and says that it belongs to aime"),
        (stray_list_element, r"\$\.dapo_eval\.scores\[17\] is no object"),
        (drop_row, r"dapo: 3 rows of dapo_004 \(\$\.dapo_eval\.scores\[16\]\), 4 are published"),
        (drop_problem, r"aime: rows of 29 problems at \$\.aime_eval\.scores, 30 are published"),
        (drop_dataset, r"no list of rows with problem and score belongs to aime"),
        (flip_score, r"dapo: the mean of the rows at \$\.dapo_eval\.scores is 0\.765, published is 0\.7675"),
        (swap_samples, r"dapo: the mean of sample 1 of the rows at .* is 0\.77, published is 0\.73"),
        (contradict, r"dapo: dapo_004 sample 1 has two scores, \$.*\[17\] and \$.*\[400\]"),
        (
            other_terminations,
            r"aime: the count of terminations of the rows at .* is final_answer 120, published",
        ),
    ],
)
def test_a_broken_document_is_refused_naming_the_place(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(BrokenRowsError, match=message):
        rows_of_document(broken(change), PUBLISHED)


def test_max_at_4_has_to_agree_as_well() -> None:
    """The same mean of each sample, and one problem fewer solved."""
    scores = published_scores()
    dapo = scores["dapo"]
    loser = int(next(index for index, row in enumerate(dapo) if row.sum() == 1))
    sample = int(dapo[loser].argmax())
    winner = int(
        next(
            index
            for index, row in enumerate(dapo)
            if 0 < row.sum() < 4 and not row[sample] and index != loser
        )
    )
    dapo[loser, sample], dapo[winner, sample] = 0.0, 1.0

    with pytest.raises(BrokenRowsError, match=r"dapo: max@4 of the rows at .* is 0\.85, published is 0\.86"):
        rows_of_document(summaries(scores), PUBLISHED)


def test_two_different_sets_of_rows_that_both_fit_are_refused() -> None:
    other = {name: scores[::-1] for name, scores in published_scores().items()}

    with pytest.raises(
        BrokenRowsError, match=r"different rows give the published figures: \$\.first.*\$\.second"
    ):
        rows_of_document({"first": summaries(), "second": summaries(other)}, PUBLISHED)


def test_a_problem_that_the_data_set_does_not_hold_is_not_taken_for_one_of_it() -> None:
    known = problem_ids()
    known["dapo"][0] = "another"

    with pytest.raises(BrokenRowsError, match="dapo: rows of 99 problems"):
        rows_of_document(summaries(), PUBLISHED, known)


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "eval4.json"
    path.write_text(json.dumps(summaries()), encoding="utf-8")

    assert read_published_rows(path, PUBLISHED, problem_ids()).samples == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>not found</html>", r"eval4\.json: line 1, column 1: no JSON"),
        (b'{"dapo": [', r"eval4\.json: line 1, column \d+: no JSON"),
        (b'[{"task_id": "a", "score": NaN}]', r"eval4\.json: it holds NaN"),
        (b"\xff\xfe", r"eval4\.json: 'utf-8' codec"),
        (b"[" * 100_000, r"eval4\.json: it is nested too deeply"),
        (b"{}", r"eval4\.json: no list of rows .* belongs to dapo"),
    ],
)
def test_a_file_that_is_no_such_document_is_refused_with_a_remedy(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "eval4.json"
    path.write_bytes(content)

    with pytest.raises(UserError, match=message) as caught:
        read_published_rows(path, PUBLISHED)
    assert caught.value.remedy is not None


def test_a_missing_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_published_rows(tmp_path / "eval4.json", PUBLISHED)
