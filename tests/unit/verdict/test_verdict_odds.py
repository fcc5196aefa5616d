"""The words come as often as computed, on runs drawn from rates like the published ones."""

import numpy as np
import pytest
from verdict_samples import (
    PUBLISHED,
    by_name,
    run_of,
    runs,
)

from runner.verdict import (
    Verdict,
    Word,
    judge,
)
from runner.verdict.beta import fit_mean_and_max
from runner.verdict.rows import PublishedRows


def simulated_words(drop: float, runs_wanted: int) -> list[Verdict]:
    """Judge runs drawn from published-like rates, against a report drawn from the same rates."""
    rng = np.random.default_rng(20260811)
    verdicts = []
    for _ in range(runs_wanted):
        scores, published = {}, {}
        for name, figures in PUBLISHED.reports["final4"].figures.items():
            a, b = fit_mean_and_max(figures.mean, figures.max_at_k or 0.0, 4)
            rates = rng.beta(a, b, size=PUBLISHED.problems[name])
            published[name] = (rng.random((len(rates), 4)) < rates[:, None]).astype(float)
            lower = np.clip(rates - drop * rates / rates.mean(), 0.0, 1.0)
            scores[name] = (rng.random((len(rates), 4)) < lower[:, None]).astype(float)
        rows = PublishedRows(
            "final4",
            4,
            {name: dict(run_of(name, one).scores) for name, one in published.items()},
            dict.fromkeys(published, "$"),
        )
        verdicts.append(judge("final4", runs(scores), PUBLISHED, rows))
    return verdicts


def test_equal_rates_are_reproduced_or_cannot_be_told_as_often_as_computed() -> None:
    """200 seeded runs; computed 0.76 reproduced, 0.05 differs. Within four standard errors (0.12, 0.06)."""
    words = [verdict.word for verdict in simulated_words(0.0, 200)]

    assert words.count(Word.REPRODUCED) / 200 == pytest.approx(0.76, abs=0.12)
    assert words.count(Word.DIFFERS) / 200 == pytest.approx(0.05, abs=0.06)


def test_ten_points_lower_differ_nearly_always() -> None:
    """60 seeded runs; computed 1.00 on DAPO (0.9997), and no run is called reproduced."""
    verdicts = simulated_words(0.10, 60)

    assert sum(by_name(verdict)["dapo"].word is Word.DIFFERS for verdict in verdicts) >= 58
    assert all(verdict.word is not Word.REPRODUCED for verdict in verdicts)
