"""What a verdict is made of: settings, words, and the frozen records that results files hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import isfinite
from typing import Any


class Word(str, Enum):
    """What a comparison comes to. There is no fourth word."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    CANNOT_TELL = "cannot tell"


class Method(str, Enum):
    """How a p came about."""

    PERMUTATION = "exact permutation within problems"
    NORMAL = "normal, variance within problems"


class VarianceSource(str, Enum):
    """Where a side's variance within problems was taken from."""

    OWN_SAMPLES = "its own samples"
    OTHER_SIDE = "the other side's samples"
    ASSUMED = "assumed: Beta fit to the published mean and max@k"


class Basis(str, Enum):
    """Where the interval of a max@k or pass@k comes from."""

    PERMUTATION = "permutation of run and published rows"
    POSTERIOR = "beta-binomial posterior of this run"


@dataclass(frozen=True)
class VerdictSettings:
    """What the words mean, in numbers. All of it is a choice, and recorded."""

    margin: float = 0.05
    """Differences within it are small enough to be called reproduced."""
    alpha: float = 0.05
    """False alarms that `differs` may have, over the family it is said of."""
    interval_level: float = 0.90
    """Level of every interval. The 90 % interval within the margin is two one-sided tests at 5 %."""
    power: float = 0.80
    """What "could have seen" and "would decide" mean."""

    def __post_init__(self) -> None:
        """Refuse values that give a word to everything, or to nothing."""
        for name in ("margin", "alpha", "interval_level", "power"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, both excluded")

    def as_document(self) -> dict[str, float]:
        """Return it for a results file."""
        return {
            "margin": self.margin,
            "alpha": self.alpha,
            "interval_level": self.interval_level,
            "power": self.power,
        }


@dataclass(frozen=True)
class RunScores:
    """This run's scores of one data set: every planned problem, and None for a trajectory without a score."""

    dataset: str
    samples: int
    scores: Mapping[str, tuple[float | None, ...]]

    def __post_init__(self) -> None:
        """Refuse rows that are no `samples` a problem: a missing trajectory is None, not a shorter row."""
        for problem, scores in self.scores.items():
            if len(scores) != self.samples:
                raise ValueError(f"{self.dataset} {problem}: {len(scores)} scores for {self.samples} samples")
            for score in scores:
                if score is not None and not (isfinite(score) and 0.0 <= score <= 1.0):
                    raise ValueError(f"{self.dataset} {problem}: a score of {score}")

    @classmethod
    def of_rows(
        cls, dataset: str, samples: int, problems: Sequence[str], rows: Sequence[tuple[str, int, float]]
    ) -> "RunScores":
        """Build it from (problem, sample, score) of what was scored, and all problems that were planned."""
        scores: dict[str, list[float | None]] = {problem: [None] * samples for problem in problems}
        for problem, sample, score in rows:
            scores[problem][sample] = score
        return cls(dataset, samples, {problem: tuple(one) for problem, one in scores.items()})

    @property
    def unfinished(self) -> int:
        """How many trajectories have no score."""
        return sum(score is None for scores in self.scores.values() for score in scores)


@dataclass(frozen=True)
class Comparison:
    """A run's mean beside a published one, for the same problems and fresh samples."""

    problems: int
    run_samples: int
    published_samples: int
    run_mean: float
    run_standard_error: float
    published_mean: float
    published_standard_error: float
    difference: float
    standard_error: float
    interval: tuple[float, float]
    p: float
    p_adjusted: float
    """After Holm over the data sets; the pooled comparison is a family of its own."""
    method: Method
    run_variance: VarianceSource
    published_variance: VarianceSource

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        return {
            "problems": self.problems,
            "run_samples": self.run_samples,
            "published_samples": self.published_samples,
            "run_mean": self.run_mean,
            "run_standard_error": self.run_standard_error,
            "published_mean": self.published_mean,
            "published_standard_error": self.published_standard_error,
            "difference": self.difference,
            "standard_error": self.standard_error,
            "interval": list(self.interval),
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "method": self.method.value,
            "run_variance": self.run_variance.value,
            "published_variance": self.published_variance.value,
        }


@dataclass(frozen=True)
class Reach:
    """What a comparison of this size can see."""

    smallest_difference: float
    """Seen with the power of the settings."""
    samples_of_run: int | None
    """Samples a problem of this run with which equal rates would be called reproduced, with that power; None
    if the published samples are too few for any number of them."""
    samples_of_both: int
    """The same if both sides had as many."""

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        return {
            "smallest_difference": self.smallest_difference,
            "samples_of_run": self.samples_of_run,
            "samples_of_both": self.samples_of_both,
        }


@dataclass(frozen=True)
class SolvedAtLeastOnce:
    """max@k or pass@k: shown, and never decided by.

    The interval is the range of the figure named by `interval_of` if nothing differs.
    """

    k: int
    is_max: bool
    """All samples of this run: max@k; else the unbiased estimate of pass@k."""
    run: float
    published: float | None
    interval: tuple[float, float]
    interval_of: str
    basis: Basis

    @property
    def name(self) -> str:
        """The figure's name."""
        return f"{'max' if self.is_max else 'pass'}@{self.k}"

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        return {
            "name": self.name,
            "k": self.k,
            "run": self.run,
            "published": self.published,
            "interval": list(self.interval),
            "interval_of": self.interval_of,
            "basis": self.basis.value,
        }


@dataclass(frozen=True)
class Point:
    """What one report says of a data set, shown beside a comparison."""

    report: str
    samples: int
    mean: float
    max_at_k: float | None = None

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        return {
            "report": self.report,
            "samples": self.samples,
            "mean": self.mean,
            "max_at_k": self.max_at_k,
        }


@dataclass(frozen=True)
class Judgement:
    """What is said about one data set, or about all of them pooled.

    With unfinished trajectories there are two comparisons, with all of them wrong and all of them right;
    without any, both are the same.
    """

    name: str
    word: Word
    why: str
    planned_problems: int
    unfinished: int = 0
    if_wrong: Comparison | None = None
    if_right: Comparison | None = None
    reach: Reach | None = None
    points: tuple[Point, ...] = ()
    solved: tuple[SolvedAtLeastOnce, ...] = ()
    notes: tuple[str, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file."""
        document: dict[str, Any] = {
            "word": self.word.value,
            "why": self.why,
            "planned_problems": self.planned_problems,
            "unfinished": self.unfinished,
            "comparison": None,
            "reach": None if self.reach is None else self.reach.as_document(),
            "published_points": [point.as_document() for point in self.points],
            "solved_at_least_once": [one.as_document() for one in self.solved],
            "notes": list(self.notes),
        }
        if self.if_wrong is not None and self.if_right is not None:
            if self.unfinished:
                document["comparison_if_unfinished_wrong"] = self.if_wrong.as_document()
                document["comparison_if_unfinished_right"] = self.if_right.as_document()
            else:
                document["comparison"] = self.if_wrong.as_document()
        return document


@dataclass(frozen=True)
class Verdict:
    """What a run says about a published score."""

    profile: str
    published: tuple[str, ...]
    """The reports it is held against."""
    rows: bool
    """Whether published rows were used."""
    settings: VerdictSettings
    datasets: tuple[Judgement, ...]
    pooled: Judgement | None
    """The headline; None where nothing can be compared."""
    forbidden: tuple[str, ...] = ()
    """Why this run is no reproduction, whatever its numbers."""
    notes: tuple[str, ...] = field(default=())

    @property
    def word(self) -> Word | None:
        """The headline's word; None for a run that is no reproduction, or with nothing to compare."""
        return None if self.forbidden or self.pooled is None else self.pooled.word

    @property
    def differs(self) -> bool:
        """Whether the numbers, pooled or of any data set, differ; also for a run that is no reproduction."""
        judgements = (*self.datasets, *(() if self.pooled is None else (self.pooled,)))
        return any(judgement.word is Word.DIFFERS for judgement in judgements)

    def as_document(self) -> dict[str, Any]:
        """Return it for a results file: JSON-ready, without NaN."""
        return {
            "word": None if self.word is None else self.word.value,
            "word_by_numbers": None if self.pooled is None else self.pooled.word.value,
            "differs": self.differs,
            "no_reproduction_because": list(self.forbidden),
            "profile": self.profile,
            "published": list(self.published),
            "published_rows": self.rows,
            "settings": self.settings.as_document(),
            "pooled": None if self.pooled is None else self.pooled.as_document(),
            "datasets": {judgement.name: judgement.as_document() for judgement in self.datasets},
            "notes": list(self.notes),
        }
