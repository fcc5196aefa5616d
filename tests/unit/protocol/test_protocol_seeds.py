"""Seeds as the report's runs used them."""

from runner.protocol.seeds import trajectory_seed, turn_seed


def test_samples_of_a_row_are_a_stride_apart() -> None:
    assert trajectory_seed(20_260_652, row=3, sample=0) == 20_260_655
    assert trajectory_seed(20_260_652, row=3, sample=1) == 21_260_658


def test_turns_are_counted_from_zero() -> None:
    assert turn_seed(21_260_658, 0) == 21_260_658
    assert turn_seed(21_260_658, 2) == 21_260_852
