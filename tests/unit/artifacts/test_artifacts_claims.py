"""Files are read by meaning: a value counts wherever it stands, and what is not there is not made up."""

from pathlib import Path
from typing import Any

import pytest

from runner.artifacts import load_manifest
from runner.artifacts.claims import Finding, check_claim, check_claims, check_lineage
from runner.artifacts.manifest import Claim, Lineage

LINEAGE = Lineage(path="f", first_generation=0, last_generation=3)


def claim(*keys: str, one_of: tuple[float | str, ...], **others: Any) -> Claim:
    return Claim(path="f", what="it", keys=keys, one_of=one_of, **others)


@pytest.mark.parametrize(
    "document",
    [
        {"updates": 25},
        {"replay": {"info": [{"Updates": 25}]}},
        [{"updates": 25.0}, {"updates": [{"ok": True}]}, {"updates": None}],
    ],
)
def test_a_value_is_found_wherever_it_stands(document: object) -> None:
    assert check_claim(document, claim("updates", one_of=(25,))).finding is Finding.HOLDS


@pytest.mark.parametrize("document", [{}, [], {"updates": "25"}, {"updates": True}, "updates", None])
def test_what_is_not_there_is_not_found(document: object) -> None:
    assert check_claim(document, claim("updates", one_of=(25,))).finding is Finding.NOT_FOUND


def test_one_place_that_says_something_else_contradicts() -> None:
    checked = check_claim([{"alpha": 0.5}, {"alpha": 0.25}], claim("alpha", one_of=(0.5,)))

    assert checked.finding is Finding.CONTRADICTED
    assert checked.line == "f: it: contradicted (the file says 0.25)"


def test_one_place_is_enough_where_a_file_holds_several_figures() -> None:
    document = {"dapo": {"base": {"mean": 0.4}, "ours": {"mean": 0.7675}}}

    wanted = claim("mean", one_of=(0.7675,), within=("dapo",), every=False)
    assert check_claim(document, wanted).finding is Finding.HOLDS
    assert check_claim({"dapo": {"mean": 0.4}}, wanted).finding is Finding.CONTRADICTED


@pytest.mark.parametrize(
    ("document", "finding"),
    [
        ({"DAPO-100": {"mean": 0.5}, "aime": {"mean": 0.9}}, Finding.HOLDS),
        ({"results": [{"dataset": "dapo_test.jsonl", "mean": 0.5}]}, Finding.HOLDS),
        ({"final": {"dapo_eval": {"scores": {"mean": 0.5}}}}, Finding.HOLDS),
        ({"aime": {"mean": 0.5}}, Finding.NOT_FOUND),
        ({"dapo": {"mean": 0.6}}, Finding.CONTRADICTED),
    ],
)
def test_a_data_set_s_figure_is_looked_for_where_the_data_set_is_named(
    document: object, finding: Finding
) -> None:
    assert check_claim(document, claim("mean", one_of=(0.5,), within=("dapo",))).finding is finding


def test_rounding_within_the_tolerance_is_the_same_figure() -> None:
    wanted = claim("mean", one_of=(0.7083333333,), tolerance=6e-5)

    assert check_claim({"mean": 0.7083}, wanted).finding is Finding.HOLDS
    assert check_claim({"mean": 0.708}, wanted).finding is Finding.CONTRADICTED


@pytest.mark.parametrize(
    "document",
    [
        {"generations": [0, 1, 2, 3]},
        {"replay": {"generations": [0, 3]}},
        [{"generation": one, "seeds": [1]} for one in range(4)],
        {
            "history": [
                {"config": {"alpha": 1}},
                {"generation": -1, "dapo_eval": {}},
                *({"generation": one, "weights": [0.5], "samples": [{"seed": 1}]} for one in (3, 1, 2, 0)),
                {"generation": 4, "final_eval": True},
            ]
        },
    ],
)
def test_updates_are_told_from_evaluations(document: object) -> None:
    assert check_lineage(document, LINEAGE).finding is Finding.HOLDS


@pytest.mark.parametrize(
    ("generations", "said"), [([0, 1, 2], "0-2"), ([0, 1, 1, 2, 3], "0-1, 1-3"), ([0, 1, 3, 4], "0-1, 3-4")]
)
def test_a_generation_missing_double_or_more_contradicts(generations: list[int], said: str) -> None:
    checked = check_lineage([{"generation": one, "seeds": []} for one in generations], LINEAGE)

    assert checked.finding is Finding.CONTRADICTED
    assert checked.found == said


def test_no_generation_at_all_is_not_found() -> None:
    assert check_lineage({"generation": 4, "final_eval": True}, LINEAGE).finding is Finding.NOT_FOUND


def test_deep_nesting_is_read_or_refused_but_never_fatal(tmp_path: Path) -> None:
    manifest = load_manifest("esopt-math-react")
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert check_claim(deep, claim("updates", one_of=(25,))).finding is Finding.NOT_FOUND
    path = tmp_path / "replay_metadata.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    assert {one.finding for one in check_claims(manifest, {path.name: path})} == {Finding.CONTRADICTED}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"<html>"])
def test_a_file_that_is_no_json_is_said_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "replay_metadata.json"
    path.write_bytes(content)
    checked = check_claims(load_manifest("esopt-math-react"), {path.name: path})

    assert [(one.what, one.finding) for one in checked] == [("can be read as JSON", Finding.CONTRADICTED)]
