"""Sampling seeds: a function of the run's base seed and of what is sampled, so a resumed run repeats them."""

SAMPLE_STRIDE = 1_000_003
"""Distance between the samples of one problem (the original's; a prime above any row index)."""

TURN_STRIDE = 97
"""Distance between the turns of one trajectory (the original's)."""


def trajectory_seed(base: int, row: int, sample: int) -> int:
    """Return the seed of sample `sample` of the problem in row `row` of its data set, both from 0."""
    return base + SAMPLE_STRIDE * sample + row


def turn_seed(trajectory: int, turn: int) -> int:
    """Return the seed of turn `turn`, from 0, of the trajectory whose seed is `trajectory`."""
    return trajectory + TURN_STRIDE * turn
