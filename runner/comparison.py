"""What a run's scores are held against: read before the run, kept whole in its journal, judged from there.

A verdict so needs nothing but the journal, wherever it is derived. Statistics are imported where they are
needed: they are slow to import, and most commands have no use for them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.datasets import Dataset, load_dataset
from runner.errors import UserError
from runner.events import ComparisonRecord, RowsRecord, RunStarted
from runner.hashing import sha256_file
from runner.profile import VerdictSection, resolve_path
from runner.state import RunState

if TYPE_CHECKING:
    from runner.verdict import Published, PublishedRows, Verdict

BUNDLED = "bundled:"
NO_PUBLISHED = "the profile names no published figures"
_NOT_FETCHED = "the published rows were not fetched"


def read_comparison(
    settings: VerdictSection | None, profile_path: Path, datasets: Sequence[Dataset], rows: Path | None
) -> ComparisonRecord | None:
    """Read the published figures that a profile names, and the rows if there are any; None if it names none.

    Raises `UserError` for figures that cannot be read. Rows that cannot be trusted are left out, with the
    reason: a verdict without them is less precise, and no less right.
    """
    if settings is None:
        return None
    from runner.verdict import load_published  # noqa: PLC0415 - see above

    path = _published_path(settings.published, profile_path)
    published = load_published(str(path))
    record = ComparisonRecord(
        source=settings.published,
        sha256=sha256_file(path),
        published=json.loads(path.read_bytes()),
        margin=settings.margin,
        no_rows_because=_NOT_FETCHED,
    )
    if rows is None:
        return record
    try:
        found = _read_rows(rows, published, datasets)
    except UserError as error:
        return record.model_copy(
            update={"no_rows_because": f"the published rows were refused: {error.message}"}
        )
    return record.model_copy(update={"rows": found, "no_rows_because": ""})


def expectation_lines_of(
    record: ComparisonRecord, profile: str, samples: int, problems: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return what a run will be able to tell, as plain lines; `problems` are the planned ids by data set."""
    from runner.verdict import VerdictSettings, expect, expectation_lines  # noqa: PLC0415 - see above

    settings = VerdictSettings(margin=record.margin)
    expected = expect(profile, samples, problems, _published(record), _rows(record), settings=settings)
    lines = expectation_lines(expected)
    return lines if record.rows is not None else [*lines, f"  {record.no_rows_because}"]


def verdict_of(state: RunState) -> "Verdict | None":
    """Return the verdict on a run as far as it is; None where its profile names no published figures."""
    started = state.started
    record = None if started is None else started.comparison
    if started is None or record is None:
        return None
    from runner.verdict import RunScores, VerdictSettings, judge  # noqa: PLC0415 - see above

    scores = [
        RunScores.of_rows(
            dataset.name,
            started.samples,
            [problem.id for problem in dataset.problems],
            [
                (key.problem_id, key.sample, one.terminated.score)
                for key, one in state.trajectories.items()
                if key.dataset == dataset.name and one.terminated is not None
            ],
        )
        for dataset in started.datasets
    ]
    return judge(
        profile_name(started),
        scores,
        _published(record),
        _rows(record),
        settings=VerdictSettings(margin=record.margin),
        forbidden=started.deviations,
        notes=(*started.notes, *((record.no_rows_because,) if record.rows is None else ())),
    )


def profile_name(started: RunStarted) -> str:
    """Return the name of a run's profile: published reports are chosen by it."""
    return str(started.profile.get("name", ""))


def _published_path(written: str, profile_path: Path) -> Path:
    if not written.startswith(BUNDLED):
        return resolve_path(written, profile_path)
    from runner.verdict.published import PUBLISHED_DIR  # noqa: PLC0415 - see above

    return PUBLISHED_DIR / f"{written.removeprefix(BUNDLED)}.json"


def _read_rows(path: Path, published: "Published", datasets: Sequence[Dataset]) -> RowsRecord:
    from runner.verdict import read_published_rows  # noqa: PLC0415 - see above

    # A run over a part of a data set knows the whole of it: rows are told apart by all of its ids.
    whole = {one.name: load_dataset(one.name, one.path, base_seed=one.base_seed) for one in datasets}
    problems = {name: [problem.id for problem in one.problems] for name, one in whole.items()}
    rows = read_published_rows(path, published, problems)
    return RowsRecord(
        file=path.name,
        sha256=sha256_file(path),
        report=rows.report,
        samples=rows.samples,
        scores={name: dict(scores) for name, scores in rows.scores.items()},
        places=dict(rows.places),
    )


def _published(record: ComparisonRecord) -> "Published":
    from runner.verdict import published_of  # noqa: PLC0415 - see above

    return published_of(record.published, record.source)


def _rows(record: ComparisonRecord) -> "PublishedRows | None":
    if record.rows is None:
        return None
    from runner.verdict import PublishedRows  # noqa: PLC0415 - see above

    rows = record.rows
    return PublishedRows(rows.report, rows.samples, rows.scores, rows.places)
