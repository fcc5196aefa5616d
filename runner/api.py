"""A run for a notebook: state, trajectories and aggregates, typed. It reads the journal and changes nothing.

from runner import open_run

run = open_run("results/final4-20261202-101500-3f9a")
run.datasets["dapo"].mean().value
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from runner import statistics
from runner.engines.base import TrajectoryKey
from runner.errors import UserError
from runner.events import DatasetRecord, ProblemRecord, RunStarted, TurnDone
from runner.journal import JOURNAL_NAME, JournalFacts, read_run
from runner.protocol.score import AnswerStatus, ScoreMethod, Termination
from runner.rescore.files import ScoreKey, read_scores
from runner.rescore.registry import Scorer
from runner.results.build import build_results, is_complete
from runner.state import RunState, TrajectoryState
from runner.statistics import Interval


def open_run(path: str | PathLike[str]) -> "Run":
    """Return a run by its directory, or by its journal; also one that is still at work, as far as it is.

    Raises `UserError` where there is no run, `JournalError` for a journal that cannot be read: both are
    `runner.errors.RecountError`, with a `message` and a `remedy`.
    """
    directory = Path(path)
    if directory.name == JOURNAL_NAME:
        directory = directory.parent
    journal = directory / JOURNAL_NAME
    if not journal.is_file():
        raise UserError(f"{directory} has no {JOURNAL_NAME}", remedy="name a run's directory: results/RUN")
    state, facts = read_run(journal)
    if state.started is None:
        raise UserError(f"{directory} never started")
    return Run(directory, state, facts, state.started)


@dataclass(frozen=True)
class Trajectory:
    """One sample of one problem. Every figure is that of its last attempt."""

    problem: ProblemRecord
    state: TrajectoryState

    @property
    def key(self) -> TrajectoryKey:
        """Its name: data set, problem, sample."""
        return self.state.key

    @property
    def dataset(self) -> str:
        """The data set that it belongs to."""
        return self.state.key.dataset

    @property
    def problem_id(self) -> str:
        """The problem's id."""
        return self.state.key.problem_id

    @property
    def sample(self) -> int:
        """Which sample of the problem, from 0."""
        return self.state.key.sample

    @property
    def question(self) -> str:
        """What was asked."""
        return self.problem.question

    @property
    def gold(self) -> str:
        """The expected answer."""
        return self.problem.answer

    @property
    def turns(self) -> tuple[TurnDone, ...]:
        """What was said, run and seen, with times in seconds and counts of tokens."""
        return tuple(self.state.turns)

    @property
    def score(self) -> float | None:
        """The recorded score, 0 or 1; None while it runs and where our own side failed, which is no 0."""
        return None if self.state.terminated is None else self.state.terminated.score

    @property
    def score_method(self) -> ScoreMethod | None:
        """How the score came about."""
        return None if self.state.terminated is None else self.state.terminated.score_method

    @property
    def termination(self) -> Termination | None:
        """Why it ended."""
        return None if self.state.terminated is None else self.state.terminated.termination

    @property
    def answer_status(self) -> AnswerStatus | None:
        """Whether its last completion has a final answer line."""
        return None if self.state.terminated is None else self.state.terminated.answer_status

    @property
    def prediction(self) -> str | None:
        """What it answered, as tables show it."""
        return None if self.state.terminated is None else self.state.terminated.prediction

    @property
    def generated_tokens(self) -> int:
        """Tokens of all its completions."""
        return sum(turn.completion_tokens for turn in self.state.turns)

    @property
    def elapsed_s(self) -> float | None:
        """How long it took, in seconds."""
        return None if self.state.terminated is None else self.state.terminated.elapsed_s

    @property
    def unfinished_because(self) -> str | None:
        """Why our own side gave it up; None where it did not."""
        cause = None if self.state.terminated is not None else self.state.cause
        return None if cause is None else cause.cause

    def as_row(self) -> dict[str, Any]:
        """Return a flat record for a table (`pandas.DataFrame(run.rows())`)."""
        return {
            "dataset": self.dataset,
            "problem_id": self.problem_id,
            "sample": self.sample,
            "score": self.score,
            "score_method": None if self.score_method is None else self.score_method.value,
            "termination": None if self.termination is None else self.termination.value,
            "gold": self.gold,
            "prediction": self.prediction,
            "turns": len(self.state.turns),
            "generated_tokens": self.generated_tokens,
            "elapsed_s": self.elapsed_s,
            "attempts": self.state.attempt,
        }


@dataclass(frozen=True)
class MeanOfScores:
    """mean@k of a data set, and what it may be off by (`runner.statistics` says which is which)."""

    value: float | None
    scored: int
    planned: int
    error_same_problems: float | None
    error_new_problems: float | None
    interval: Interval | None
    """95 %, as displays show it; its `basis` says for what."""


@dataclass(frozen=True)
class Dataset:
    """One data set of a run."""

    record: DatasetRecord
    samples: int
    trajectories: tuple[Trajectory, ...]
    _scores_by: "Callable[[Scorer], Mapping[ScoreKey, float | None]]"

    @property
    def name(self) -> str:
        """Its name in the profile."""
        return self.record.name

    @property
    def problems(self) -> tuple[ProblemRecord, ...]:
        """The problems that ran, in order."""
        return self.record.problems

    def scores(self, scorer: Scorer | str | None = None) -> dict[str, list[float]]:
        """Return scores by problem: the recorded, or those of a scorer. What has none is left out."""
        return statistics.grouped((problem, score) for problem, _, score in self._scored(scorer))

    def mean(self, scorer: Scorer | str | None = None) -> MeanOfScores:
        """Return mean@k with its errors."""
        running = statistics.RunningMean()
        for problem, _, score in self._scored(scorer):
            running.add(problem, score)
        scores = self.scores(scorer)
        return MeanOfScores(
            value=running.value,
            scored=running.count,
            planned=len(self.record.problems) * self.samples,
            error_same_problems=statistics.error_same_problems(scores),
            error_new_problems=statistics.error_new_problems(scores),
            interval=running.interval(),
        )

    def pass_at_k(self, k: int, scorer: Scorer | str | None = None) -> float | None:
        """Return the unbiased estimate of pass@k; None unless every scored problem has k scores."""
        return statistics.pass_at_k(self.scores(scorer), k)

    def sample_means(self, scorer: Scorer | str | None = None) -> dict[int, float]:
        """Return the mean of each sample over problems: how far single evaluations lie apart."""
        found: dict[int, list[float]] = {}
        for _, sample, score in self._scored(scorer):
            found.setdefault(sample, []).append(score)
        return {sample: sum(scores) / len(scores) for sample, scores in sorted(found.items())}

    def _scored(self, scorer: Scorer | str | None) -> Iterable[tuple[str, int, float]]:
        by = None if scorer is None else self._scores_by(Scorer(scorer))
        for one in self.trajectories:
            score = one.score if by is None else by.get((one.dataset, one.problem_id, one.sample))
            if score is not None:
                yield one.problem_id, one.sample, score


@dataclass(frozen=True)
class Run:
    """A run as far as its journal went when it was opened."""

    path: Path
    state: RunState
    """All of it, as every view and result is derived from it."""
    journal: JournalFacts
    """The file that it was read from: its SHA-256 names the run."""
    started: RunStarted

    @property
    def id(self) -> str:
        """The run's name."""
        return self.started.run_id

    @property
    def is_complete(self) -> bool:
        """Whether every planned trajectory has a score."""
        return is_complete(self.state)

    @cached_property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Every trajectory that began, in the order of the run's data sets."""
        problems = {record.name: self.state.problems(record.name) for record in self.started.datasets}
        return tuple(
            Trajectory(problems[key.dataset][key.problem_id], self.state.trajectories[key])
            for key in self.state.planned()
            if key in self.state.trajectories
        )

    @cached_property
    def datasets(self) -> dict[str, Dataset]:
        """The data sets by name, in the profile's order."""
        return {
            record.name: Dataset(
                record,
                self.started.samples,
                tuple(one for one in self.trajectories if one.dataset == record.name),
                self.scores,
            )
            for record in self.started.datasets
        }

    @cached_property
    def results(self) -> dict[str, Any]:
        """What `evaluation_results.json` holds, derived from the journal (docs/results.md)."""
        return build_results(self.state, self.journal)

    def scores(self, scorer: Scorer | str) -> Mapping[ScoreKey, float | None]:
        """Return a scorer's scores by data set, problem and sample, as `recount report --scorer` wrote them.

        None where the scorer failed. Raises `UserError` where it has not scored this journal.
        """
        wanted = Scorer(scorer)
        files, _ = read_scores(self.path, self.journal)
        if wanted not in files:
            raise UserError(
                f"{self.id} has no scores of {wanted.value} for its journal as it is",
                remedy=f"recount report {self.path} --scorer {wanted.value}",
            )
        return files[wanted].scores

    def trajectory(self, dataset: str, problem_id: str, sample: int = 0) -> Trajectory:
        """Return one trajectory; raise `KeyError` for one that never began."""
        state = self.state.trajectories[TrajectoryKey(dataset, problem_id, sample)]
        return Trajectory(self.state.problems(dataset)[problem_id], state)

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat record a trajectory, for a table."""
        return [one.as_row() for one in self.trajectories]
