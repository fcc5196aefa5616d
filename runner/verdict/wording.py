"""Sentences about a comparison, in points (hundredths of the score)."""

from collections.abc import Sequence

from runner.verdict.model import Comparison, Reach, VerdictSettings, Word


def word_reason(word: Word, if_wrong: Comparison, if_right: Comparison, settings: VerdictSettings) -> str:
    """Return why both readings of the unfinished trajectories (one, if there are none) give this word."""
    low, high = (
        min(if_wrong.interval[0], if_right.interval[0]),
        max(if_wrong.interval[1], if_right.interval[1]),
    )
    level = f"{settings.interval_level * 100:g} % interval"
    range_ = f"{signed_points(low)} to {signed_points(high)} points"
    p = max(if_wrong.p_adjusted, if_right.p_adjusted)
    if word is Word.REPRODUCED:
        small = "" if p >= settings.alpha else f"; a smaller difference is there ({p_text(p)})"
        return f"the {level} of the difference, {range_}, lies within {points(settings.margin)} points{small}"
    if word is Word.DIFFERS:
        nearest = min((if_wrong.difference, if_right.difference), key=abs)
        side = "above" if nearest > 0 else "below"
        least = "at least " if if_wrong != if_right else ""
        adjusted = " after Holm" if any(one.p != one.p_adjusted for one in (if_wrong, if_right)) else ""
        return f"{least}{points(abs(nearest))} points {side} the published mean, {p_text(p)}{adjusted}"
    beyond = f"reaches beyond {points(settings.margin)} points"
    return f"the {level} of the difference, {range_}, {beyond}, and no difference is shown ({p_text(p)})"


def unfinished_reason(count: int, words: Sequence[Word], comparisons: Sequence[Comparison]) -> str:
    """Return why unfinished trajectories leave no word."""
    wrong, right = comparisons
    return (
        f"{trajectories(count)} without a score: all wrong would be {words[0].value}"
        f" ({signed_points(wrong.difference)} points), all right {words[1].value}"
        f" ({signed_points(right.difference)})"
    )


def reach_sentence(reach: Reach, run_samples: int, published_samples: int, settings: VerdictSettings) -> str:
    """Return what this comparison could see, and what would decide."""
    seen = (
        f"{samples_text(run_samples)} against {published_samples} see a difference of"
        f" {points(reach.smallest_difference)} points ({settings.power * 100:g} % power); "
    )
    if reach.samples_of_run is None:
        return (
            f"{seen}no number of this run's own would settle {points(settings.margin)} points,"
            f" {reach.samples_of_both} on both sides would"
        )
    return f"{seen}{reach.samples_of_run} of this run's would settle {points(settings.margin)} points"


def points(value: float) -> str:
    """Return hundredths, one decimal at most."""
    return f"{round(value * 100, 1):g}"


def signed_points(value: float) -> str:
    """Return hundredths with their sign."""
    return f"{value * 100:+.1f}"


def p_text(p: float) -> str:
    """Return p as papers print it."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def trajectories(count: int) -> str:
    """Return a count of trajectories in words."""
    return f"{count} {'trajectory' if count == 1 else 'trajectories'}"


def samples_text(count: int) -> str:
    """Return a count of samples in words."""
    return f"{count} {'sample' if count == 1 else 'samples'}"
