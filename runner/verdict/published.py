"""What was published about a checkpoint's scores, as data that comes with the package.

A profile is held against one report or against several pooled (`references`): a single sample a problem is so
noisy that it is compared with every published sample of the same weights, not with one that happens to be
printed beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from runner.errors import UserError

PUBLISHED_DIR = Path(__file__).parent.parent / "data" / "published"
DEFAULT_PUBLISHED = "qwen35-4b-math-react"


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _FiguresDocument(_Document):
    mean: float = Field(ge=0.0, le=1.0)
    max_at_k: float | None = Field(default=None, ge=0.0, le=1.0)
    by_sample: list[float] = []
    terminations: dict[str, int] = {}
    score_methods: dict[str, int] = {}


class _ReportDocument(_Document):
    samples: int = Field(ge=1)
    figures: dict[str, _FiguresDocument]


class _PublishedDocument(_Document):
    checkpoint: str
    problems: dict[str, int]
    reports: dict[str, _ReportDocument]
    references: dict[str, list[str]]
    rows_of: str

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        named = [self.rows_of, *(name for names in self.references.values() for name in names)]
        if unknown := sorted(set(named) - set(self.reports)):
            raise ValueError(f"no report is called {', '.join(unknown)}")
        for name, report in self.reports.items():
            if unknown := sorted(set(report.figures) - set(self.problems)):
                raise ValueError(f"report {name} has figures of unknown data sets: {', '.join(unknown)}")
        return self


@dataclass(frozen=True)
class Figures:
    """What a report says about one data set; what it does not say is None or empty."""

    mean: float
    max_at_k: float | None = None
    by_sample: tuple[float, ...] = ()
    terminations: Mapping[str, int] = field(default_factory=dict)
    score_methods: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """One published evaluation: how many samples a problem, and its figures by data set."""

    name: str
    samples: int
    figures: Mapping[str, Figures]


@dataclass(frozen=True)
class Published:
    """Everything published about one checkpoint's scores."""

    checkpoint: str
    problems: Mapping[str, int]
    """How many problems each data set has."""
    reports: Mapping[str, Report]
    references: Mapping[str, tuple[str, ...]]
    """Profile to the reports that it is held against, pooled by samples."""
    rows_of: str
    """The report whose rows are published too."""

    def reference(self, profile: str) -> tuple[Report, ...]:
        """Return the reports that a profile is held against; empty for a profile nothing is published for."""
        return tuple(self.reports[name] for name in self.references.get(profile, ()))


def load_published(name_or_path: str = DEFAULT_PUBLISHED) -> Published:
    """Read published figures that come with the package, or a JSON file of the same form."""
    bundled = PUBLISHED_DIR / f"{name_or_path}.json"
    path = bundled if bundled.is_file() else Path(name_or_path)
    try:
        document = _PublishedDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"no published figures {name_or_path!r}: {error.strerror or error}",
            remedy=f"name one of {', '.join(published_names())}, or a JSON file of the same form",
        ) from None
    except ValidationError as error:
        raise _broken(error, path.name) from None
    return _published(document)


def published_of(document: object, name: str) -> Published:
    """Return published figures from a decoded document called `name`; raise `UserError`."""
    try:
        return _published(_PublishedDocument.model_validate(document))
    except ValidationError as error:
        raise _broken(error, name) from None


def published_names() -> list[str]:
    """Return the names of the published figures that come with the package, sorted."""
    return sorted(path.stem for path in PUBLISHED_DIR.glob("*.json"))


def _broken(error: ValidationError, name: str) -> UserError:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]) or "the document"
    return UserError(f"{name}: {place}: {first['msg']}", remedy=f"compare it with {DEFAULT_PUBLISHED}.json")


def _published(document: _PublishedDocument) -> Published:
    return Published(
        checkpoint=document.checkpoint,
        problems=dict(document.problems),
        reports={
            name: Report(name, report.samples, {key: _figures(one) for key, one in report.figures.items()})
            for name, report in document.reports.items()
        },
        references={name: tuple(names) for name, names in document.references.items()},
        rows_of=document.rows_of,
    )


def _figures(document: _FiguresDocument) -> Figures:
    values: dict[str, Any] = document.model_dump()
    return Figures(**values | {"by_sample": tuple(document.by_sample)})
