"""What a run is said to be able to tell before it starts."""

import json

import pytest
from verdict_samples import (
    PUBLISHED,
    problem_ids,
    published_rows,
)

from runner.verdict import (
    VerdictSettings,
    expect,
    expectation_lines,
)
from runner.verdict.expectation import power_at, reproduced_if_equal
from runner.verdict.text import TEXT_WIDTH

ROWS = published_rows()


def test_aime_is_said_to_tell_little_before_the_run() -> None:
    expectation = expect("final4", 4, problem_ids(), PUBLISHED)
    outlook = {one.name: one for one in expectation.datasets}

    assert outlook["aime"].reproduced_if_equal == 0.0
    assert "mostly it cannot tell" in outlook["aime"].sentence
    assert outlook["dapo"].reproduced_if_equal == pytest.approx(0.83, abs=0.02)
    lines = expectation_lines(expectation)
    assert any("aime, 30 problems and 4 samples of each" in line for line in lines)
    assert max(len(line) for line in lines) <= TEXT_WIDTH + 20
    json.dumps(expectation.as_document(), allow_nan=False)


def test_expected_power_of_a_data_set_is_that_after_holm_s_strictest_step() -> None:
    expectation = expect("final4", 4, problem_ids(), PUBLISHED)
    aime = expectation.datasets[1]

    # w = 0.1717: standard error 0.0535; ten points are 1.869 of them, 2.241 are needed.
    assert aime.standard_error == pytest.approx(0.0535, abs=1e-4)
    assert dict(aime.power)[0.10] == pytest.approx(0.355, abs=2e-3)
    assert expectation.pooled is not None
    assert dict(expectation.pooled.power)[0.05] == pytest.approx(0.81, abs=0.01)


def test_an_expectation_of_a_part_needs_the_rows() -> None:
    part = {name: ids[:5] for name, ids in problem_ids().items()}

    assert expect("final4", 4, part, PUBLISHED).pooled is None
    with_rows = expect("final4", 4, part, PUBLISHED, ROWS)
    assert with_rows.pooled is not None
    assert with_rows.pooled.problems == 10


def test_power_by_hand() -> None:
    # A difference of 1.96 standard errors is found half of the time; none at all in alpha.
    assert power_at(1.959964 * 0.01, 0.01, 0.05) == pytest.approx(0.5, abs=1e-3)
    assert power_at(0.0, 0.01, 0.05) == pytest.approx(0.05)
    # margin 5, error 2.5: 2 - 1.645 errors of room, so P(|Z| < 0.355).
    assert reproduced_if_equal(0.025, VerdictSettings()) == pytest.approx(0.2775, abs=1e-3)
    assert reproduced_if_equal(0.05, VerdictSettings()) == 0.0
