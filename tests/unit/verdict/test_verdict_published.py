"""Published figures: those of the package are the report's, and a file of the same form can be given."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UserError
from runner.verdict import DEFAULT_PUBLISHED, load_published, published_names
from runner.verdict.published import PUBLISHED_DIR

REPORT = Path(__file__).resolve().parents[4] / "shared" / "report" / "published.json"


def test_the_package_s_figures_are_the_report_s() -> None:
    if not REPORT.is_file():
        pytest.skip("published.json is not part of the repository and is not in ../shared/report")
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    published = load_published()

    assert published.checkpoint == report["model"]
    assert dict(published.problems) == {name: one["problems"] for name, one in report["datasets"].items()}
    final4 = published.reports["final4"]
    assert final4.samples == report["final4"]["samples"]
    for name, figures in final4.figures.items():
        said = report["final4"]["stored_report"][name]
        assert figures.mean == said["mean"]
        assert figures.max_at_k == said["max@4"]
        assert list(figures.by_sample) == said["by_sample"]
        assert figures.terminations == said["terminations"]
        assert figures.score_methods == said["score_methods"]
    for name in published.problems:
        interval, check = published.reports["interval25"], published.reports["direct_check_2026_08_11"]
        assert interval.figures[name].mean == report["interval25"]["stored_report"][name]["mean"]
        correct = report["interval25"]["direct_check_2026_08_11"][name]["correct"]
        assert check.figures[name].mean == pytest.approx(correct / published.problems[name])


def test_the_figures_agree_with_each_other() -> None:
    published = load_published()

    for report in published.reports.values():
        for name, figures in report.figures.items():
            trajectories = published.problems[name] * report.samples
            if figures.by_sample:
                assert sum(figures.by_sample) / report.samples == pytest.approx(figures.mean)
            for counts in (figures.terminations, figures.score_methods):
                assert not counts or sum(counts.values()) == trajectories
            right = figures.mean * trajectories
            assert right == pytest.approx(round(right), abs=1e-6)


def test_interval25_is_held_against_every_published_sample() -> None:
    published = load_published()

    assert sum(report.samples for report in published.reference("interval25")) == 6
    assert [report.name for report in published.reference("final4")] == ["final4"]


def test_a_profile_nothing_is_published_for_has_no_reference() -> None:
    assert load_published().reference("demo") == ()


def changed(tmp_path: Path, **changes: Any) -> str:
    document = json.loads((PUBLISHED_DIR / f"{DEFAULT_PUBLISHED}.json").read_text(encoding="utf-8"))
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document | changes), encoding="utf-8")
    return str(path)


def test_a_file_of_the_same_form_is_read(tmp_path: Path) -> None:
    assert load_published(changed(tmp_path, checkpoint="me/mine")).checkpoint == "me/mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows_of": "final8"}, "no report is called final8"),
        ({"references": {"mine": ["nothing"]}}, "no report is called nothing"),
        ({"problems": {"dapo": 100}}, "figures of unknown data sets: aime"),
        ({"reports": {"final4": {"samples": 0, "figures": {}}}}, r"reports\.final4\.samples"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load_published(changed(tmp_path, **changes))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"no published figures 'nothing'") as caught:
        load_published("nothing")
    assert published_names() == [DEFAULT_PUBLISHED]
    assert DEFAULT_PUBLISHED in str(caught.value)
