"""Reading runs and holding each against the first."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.compare.model import RunComparison, Side
from runner.compare.pairing import check_comparable, pair, settings_of, warnings_of
from runner.errors import UserError
from runner.journal import JOURNAL_NAME, is_being_written, read_run
from runner.rescore.files import ScoreKey, read_scores
from runner.rescore.registry import Scorer
from runner.state import RunState


def read_side(run_dir: Path, scorer: Scorer | None = None) -> Side:
    """Read a run, with its recorded scores or those of a scorer.

    Raises `JournalError` for a journal that cannot be read, `UserError` where the scorer has not scored it.
    """
    journal = run_dir / JOURNAL_NAME
    state, facts = read_run(journal)
    if state.started is None:
        raise UserError(f"{run_dir} never started")
    scores: Mapping[ScoreKey, float | None] = recorded_scores(state)
    if scorer is not None:
        files, _ = read_scores(run_dir, facts)
        if scorer not in files:
            raise UserError(
                f"{state.started.run_id} has no scores of {scorer.value} for its journal as it is",
                remedy=f"recount report {run_dir} --scorer {scorer.value}",
            )
        scores = files[scorer].scores
    return Side(run_dir, state.started, state, scores, is_being_written(journal))


def recorded_scores(state: RunState) -> dict[ScoreKey, float | None]:
    """Return the scores that a run gave."""
    return {
        (key.dataset, key.problem_id, key.sample): one.terminated.score
        for key, one in state.trajectories.items()
        if one.terminated is not None
    }


def compare_runs(sides: Sequence[Side]) -> list[RunComparison]:
    """Hold every run against the first; raise `UserError` where they cannot be paired."""
    from runner.compare.numbers import adjusted, difference_of, pooled_difference  # noqa: PLC0415 - slow

    baseline, others = sides[0], sides[1:]
    if not others:
        raise UserError("one run alone", remedy="name two or more")
    for side in others:
        if side.path.resolve() == baseline.path.resolve():
            raise UserError(f"{side.name} is named twice", remedy="name another run")
        check_comparable(baseline, side)
    paired = [pair(baseline, side) for side in others]
    pooled = [pooled_difference(one) for one in paired]
    p_adjusted = adjusted([one.permutation_p for one in pooled])
    return [
        RunComparison(
            baseline=baseline,
            other=side,
            datasets=tuple(difference_of(one) for one in mine),
            pooled=whole,
            pooled_p_adjusted=p,
            warnings=tuple(warnings_of(baseline, side, mine)),
            settings=tuple(settings_of(baseline, side)),
        )
        for side, mine, whole, p in zip(others, paired, pooled, p_adjusted, strict=True)
    ]
