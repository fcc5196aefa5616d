"""Exact distributions, against enumeration of every assignment."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.verdict.permutation import (
    central_interval,
    counts_of,
    permutation_p,
    solved_parts,
    solved_shares,
    success_distributions,
    sum_distribution,
)


def enumerated_p(run: list[list[int]], published: list[list[int]]) -> float:
    """The mid-p of the difference of means by walking through all assignments within problems."""
    samples = len(run[0])

    def difference(sides: list[tuple[list[int], list[int]]]) -> float:
        return sum(sum(mine) / len(mine) - sum(theirs) / len(theirs) for mine, theirs in sides) / len(sides)

    choices = []
    for mine, theirs in zip(run, published, strict=True):
        draws = mine + theirs
        splits = []
        for chosen in combinations(range(len(draws)), samples):
            left = [draws[i] for i in chosen]
            right = [draws[i] for i in range(len(draws)) if i not in chosen]
            splits.append((left, right))
        choices.append(splits)
    seen = abs(difference(list(zip(run, published, strict=True))))
    distances = [abs(difference(list(sides))) for sides in product(*choices)]
    beyond = sum(distance > seen + 1e-9 for distance in distances)
    equal = sum(abs(distance - seen) <= 1e-9 for distance in distances)
    return 1.0 if seen < 1e-9 else (beyond + equal / 2) / len(distances)


OUTCOMES = st.integers(0, 1)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_p_is_that_of_all_assignments(data: st.DataObject, k: int, m: int, problems: int) -> None:
    run = [data.draw(st.lists(OUTCOMES, min_size=k, max_size=k)) for _ in range(problems)]
    published = [data.draw(st.lists(OUTCOMES, min_size=m, max_size=m)) for _ in range(problems)]

    right = [sum(one) for one in run]
    everything = [sum(one) + sum(other) for one, other in zip(run, published, strict=True)]

    assert permutation_p(right, everything, k, m)[0] == pytest.approx(enumerated_p(run, published), abs=1e-9)


def test_p_of_two_problems_by_hand() -> None:
    # One sample a side, run right and report wrong twice: two of four assignments are as far, none further.
    assert permutation_p([1, 1], [1, 1], 1, 1)[0] == pytest.approx(0.25)


def test_p_is_one_where_all_samples_agree() -> None:
    assert permutation_p([4, 0, 4], [8, 0, 8], 4, 4)[0] == 1.0


def test_a_batch_has_the_p_of_its_entries() -> None:
    rng = np.random.default_rng(3)
    run, published = rng.integers(0, 5, (20, 30)), rng.integers(0, 5, (20, 30))

    together = permutation_p(run, run + published, 4, 4)

    alone = [permutation_p(one, one + other, 4, 4)[0] for one, other in zip(run, published, strict=True)]
    assert together == pytest.approx(alone, abs=1e-12)


def test_hundred_problems_far_apart_have_a_tiny_p_and_no_negative_one() -> None:
    p = permutation_p([4] * 100, [4] * 100, 4, 4)[0]

    assert 0.0 <= p < 1e-12


def test_success_distributions_are_hypergeometric() -> None:
    table = success_distributions(2, 3)

    for right, row in enumerate(table):
        expected = [comb(right, c) * comb(5 - right, 2 - c) / comb(5, 2) for c in range(3)]
        assert row == pytest.approx(expected, abs=1e-12)


def test_a_sum_s_distribution_is_the_convolution() -> None:
    probabilities = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    values = np.array([0, 1, 3])
    kinds = [0, 1, 1]

    found = sum_distribution(values, probabilities, counts_of(np.array(kinds), 2))[0]

    expected = np.zeros(10)
    for picks in product(range(3), repeat=3):
        chance = np.prod([probabilities[kind, pick] for kind, pick in zip(kinds, picks, strict=True)])
        expected[sum(values[list(picks)])] += chance
    assert found == pytest.approx(expected, abs=1e-12)


def test_kinds_of_their_own_a_batch_entry_give_the_same_as_common_ones() -> None:
    common = success_distributions(4, 4)
    totals = np.random.default_rng(1).integers(0, 9, (5, 20))
    counts, values = counts_of(totals, 9), np.arange(5)

    own = sum_distribution(values, np.repeat(common[None], 5, axis=0), counts)

    assert own == pytest.approx(sum_distribution(values, common, counts), abs=1e-12)


def test_an_interval_leaves_at_most_its_tails() -> None:
    distribution = np.array([[0.04, 0.06, 0.8, 0.06, 0.04]])

    low, high = central_interval(distribution, 0.90)

    assert (low[0], high[0]) == (1, 3)


@pytest.mark.parametrize(("samples", "k"), [(4, 2), (4, 4), (5, 3)])
def test_what_a_problem_adds_is_the_share_of_subsets_with_a_right_sample(samples: int, k: int) -> None:
    parts, whole = solved_parts(samples, k)

    for right in range(samples + 1):
        outcomes = [1] * right + [0] * (samples - right)
        subsets = list(combinations(outcomes, k))
        share = sum(any(one) for one in subsets) / len(subsets)
        assert parts[right] / whole == pytest.approx(share, abs=1e-12)
        assert solved_shares(samples, k)[right] == pytest.approx(share, abs=1e-12)


def test_parts_stay_few_where_subsets_are_many() -> None:
    parts, whole = solved_parts(200, 100)

    assert whole == 1000
    assert (parts[0], parts[-1]) == (0, 1000)
