"""The published rows: one score a problem and sample, read and checked before anything is built on them.

The file's layout is not ours and may change, so any list of rows is read wherever it stands (`rows_walk.py`),
and what was read must give every published figure: mean, max@k, the mean of each sample, terminations, score
methods. Rows that do not are refused, since a wrong reading would make an exact test of wrong numbers.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.errors import UserError
from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.verdict.published import Figures, Published
from runner.verdict.rows_walk import BrokenRowsError, FoundRow, find_rows, place
from runner.verdict.rows_walk import Path as NodePath

_TOLERANCE = 1e-9
_REMEDY = "fetch it again; without the rows the verdict falls back on the published means"


@dataclass(frozen=True)
class PublishedRows:
    """Published scores by data set and problem."""

    report: str
    samples: int
    scores: Mapping[str, Mapping[str, tuple[float, ...]]]
    places: Mapping[str, str]
    """Where in the file each data set's rows stand."""


@dataclass(frozen=True)
class _Expected:
    """What the rows of one data set must come to."""

    name: str
    problems: int
    samples: int
    figures: Figures
    ids: tuple[str, ...] | None
    """The data set's problems in its order, where it is at hand."""


@dataclass(frozen=True)
class _Table:
    scores: Mapping[str, tuple[float, ...]]
    place: str


def read_published_rows(
    path: Path, published: Published, problems: Mapping[str, Sequence[str]] | None = None
) -> PublishedRows:
    """Read the rows of the report that has some; raise `UserError`, naming the place, for what cannot be
    trusted.

    `problems` are the ids of each data set in its order: with them rows are told apart for certain, and rows
    that only say their index can be read.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name}: {error}", remedy=_REMEDY) from None
    try:
        return rows_of_document(_decode(text), published, problems)
    except BrokenRowsError as error:
        raise UserError(f"{path.name}: {error}", remedy=_REMEDY) from None


def rows_of_document(
    document: object, published: Published, problems: Mapping[str, Sequence[str]] | None = None
) -> PublishedRows:
    """Return the rows in a decoded document; raise `BrokenRowsError`."""
    report = published.reports[published.rows_of]
    known = {} if problems is None else problems
    by_dataset = _by_dataset(find_rows(document), tuple(published.problems), known)
    tables = {}
    for name, figures in report.figures.items():
        ids = tuple(known[name]) if name in known else None
        expected = _Expected(name, published.problems[name], report.samples, figures, ids)
        tables[name] = _choose(by_dataset.get(name, []), expected)
    return PublishedRows(
        report=report.name,
        samples=report.samples,
        scores={name: table.scores for name, table in tables.items()},
        places={name: table.place for name, table in tables.items()},
    )


def _decode(text: str) -> object:
    def refuse(constant: str) -> object:
        raise BrokenRowsError(f"it holds {constant}, which is no number")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise BrokenRowsError(f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}") from None
    except RecursionError:
        raise BrokenRowsError("it is nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise BrokenRowsError(str(error)) from None


def _by_dataset(
    rows: Sequence[FoundRow], datasets: Sequence[str], known: Mapping[str, Sequence[str]]
) -> dict[str, list[FoundRow]]:
    """Sort rows by data set. Rows of none of them (a training set's, say) are left out."""
    owners = {problem: name for name, ids in known.items() for problem in ids}
    sorted_rows: dict[str, list[FoundRow]] = defaultdict(list)
    for row in rows:
        name = owners.get(row.problem) if row.problem is not None else None
        if name is None:
            name = _dataset_by_name(row, datasets)
            if name in known and row.problem is not None:
                continue  # a problem that the data set does not hold
        if name is None:
            continue
        sorted_rows[name].append(_with_problem(row, known.get(name)))
    return sorted_rows


def _dataset_by_name(row: FoundRow, datasets: Sequence[str]) -> str | None:
    """Return the data set that a row's fields, its place or its problem's name speak of."""
    by_field = _one_named(row.dataset_fields, datasets)
    by_place = _one_named([part for part in reversed(row.path) if isinstance(part, str)], datasets)
    if by_field is not None and by_place is not None and by_field != by_place:
        raise BrokenRowsError(f"{row.place} stands below {by_place} and says that it belongs to {by_field}")
    return by_field or by_place or _one_named([row.problem or ""], datasets)


def _one_named(texts: Sequence[str], datasets: Sequence[str]) -> str | None:
    """Return the data set that the first telling text names; a text that names two tells nothing."""
    for text in texts:
        words = re.split(r"[^a-z]+", text.lower())
        named = [name for name in datasets if name in words]
        if len(named) == 1:
            return named[0]
    return None


def _with_problem(row: FoundRow, ids: Sequence[str] | None) -> FoundRow:
    """Return a row that names its problem; one that says only its index takes it from the data set."""
    if row.problem is not None or row.row_index is None:
        return row
    if ids is None:
        raise BrokenRowsError(f"{row.place} says only its row index, and the data set is not at hand")
    if not 0 <= row.row_index < len(ids):
        raise BrokenRowsError(
            f"{row.place} has row index {row.row_index}, beyond the data set's {len(ids)} problems"
        )
    return replace(row, problem=ids[row.row_index])


def _choose(rows: Sequence[FoundRow], expected: _Expected) -> _Table:
    """Return the rows that give the published figures: all there are, or those below one place.

    A file may hold other evaluations too (one before training, one with a single sample): the figures tell.
    """
    if not rows:
        raise BrokenRowsError(f"no list of rows with problem and score belongs to {expected.name}")
    fitting: dict[tuple[tuple[str, tuple[float, ...]], ...], _Table] = {}
    whole_reason: str | None = None
    for below in _places(rows):
        try:
            table = _Table(_checked(below, expected), place(_common(below)))
        except BrokenRowsError as error:
            whole_reason = whole_reason or str(error)
            continue
        fitting.setdefault(tuple(sorted(table.scores.items())), table)
        if len(below) == len(rows):
            break  # all rows there are: nothing else to choose from
    if not fitting:
        raise BrokenRowsError(whole_reason or f"{expected.name}: no rows")
    if len(fitting) > 1:
        places = ", ".join(table.place for table in fitting.values())
        raise BrokenRowsError(f"{expected.name}: different rows give the published figures: {places}")
    return next(iter(fitting.values()))


def _places(rows: Sequence[FoundRow]) -> Iterator[list[FoundRow]]:
    """Yield all rows, then those below every place that holds some of them, top down."""
    below: dict[NodePath, list[FoundRow]] = defaultdict(list)
    for row in rows:
        for length in range(len(row.path)):
            below[row.path[:length]].append(row)
    yield list(rows)
    for _, held in sorted(below.items(), key=lambda item: len(item[0])):
        if len(held) < len(rows):
            yield held


def _checked(rows: Sequence[FoundRow], expected: _Expected) -> dict[str, tuple[float, ...]]:
    """Return scores by problem, samples in order; raise for rows that are not those of the published
    figures."""
    name, by_problem, kept = expected.name, *_merged(rows, expected.name)
    at = place(_common(rows))
    if len(by_problem) != expected.problems:
        raise BrokenRowsError(
            f"{name}: rows of {len(by_problem)} problems at {at}, {expected.problems} are published"
        )
    for problem, samples in by_problem.items():
        if len(samples) != expected.samples:
            first = next(row for row in rows if row.problem == problem)
            raise BrokenRowsError(
                f"{name}: {len(samples)} rows of {problem} ({first.place}), {expected.samples} are published"
            )
    scores = {
        problem: tuple(samples[index] for index in sorted(samples)) for problem, samples in by_problem.items()
    }
    said_samples = all(row.sample is not None for row in rows)
    for what, found, said in _figures(scores, kept, expected, said_samples=said_samples):
        if not _agree(found, said):
            raise BrokenRowsError(
                f"{name}: {what} of the rows at {at} is {_shown(found)}, published is {_shown(said)}"
            )
    order = expected.ids or tuple(scores)
    return {problem: scores[problem] for problem in order}


def _merged(rows: Sequence[FoundRow], name: str) -> tuple[dict[str, dict[int, float]], list[FoundRow]]:
    """Put rows by problem and sample. One that stands twice counts once; with two scores it is refused."""
    first: dict[tuple[str, int], FoundRow] = {}
    by_problem: dict[str, dict[int, float]] = {}
    for row in _numbered(rows):
        if row.problem is None or row.sample is None:
            raise BrokenRowsError(f"{row.place} names no problem")
        before = first.setdefault((row.problem, row.sample), row)
        if before.score != row.score:
            raise BrokenRowsError(
                f"{name}: {row.problem} sample {row.sample} has two scores, {before.place} and {row.place}"
            )
        by_problem.setdefault(row.problem, {})[row.sample] = row.score
    return by_problem, list(first.values())


def _numbered(rows: Sequence[FoundRow]) -> list[FoundRow]:
    """Return rows with a sample each: the one they say, else the one that their place suggests.

    Where places suggest the same for two rows of a problem they meant something else, and order counts: the
    comparison needs no numbers, only all samples of a problem together.
    """
    if all(row.sample is not None for row in rows):
        return list(rows)
    suggested = [replace(row, sample=row.sample_hint if row.sample is None else row.sample) for row in rows]
    keys = {(row.problem, row.sample) for row in suggested}
    if len(keys) == len(rows) and all(row.sample is not None for row in suggested):
        return suggested
    seen: Counter[str | None] = Counter()
    in_order = []
    for row in rows:
        in_order.append(replace(row, sample=seen[row.problem]))
        seen[row.problem] += 1
    return in_order


def _figures(
    scores: Mapping[str, tuple[float, ...]],
    rows: Sequence[FoundRow],
    expected: _Expected,
    *,
    said_samples: bool,
) -> Iterator[tuple[str, object, object]]:
    """Yield every published figure beside the rows' own; means of samples where rows say which they are."""
    published = expected.figures
    yield "the mean", _mean([value for one in scores.values() for value in one]), published.mean
    if published.max_at_k is not None:
        yield f"max@{expected.samples}", _mean([max(one) for one in scores.values()]), published.max_at_k
    if published.by_sample and said_samples:
        for index, said in enumerate(published.by_sample):
            yield f"the mean of sample {index}", _mean([one[index] for one in scores.values()]), said
    terminations = [row.termination for row in rows if row.termination is not None]
    if published.terminations and len(terminations) == len(rows):
        yield "the count of terminations", dict(Counter(terminations)), dict(published.terminations)
    methods = [
        row.score_method.removeprefix(SCORE_METHOD_PREFIX) for row in rows if row.score_method is not None
    ]
    if published.score_methods and len(methods) == len(rows):
        yield "the count of score methods", dict(Counter(methods)), dict(published.score_methods)


def _common(rows: Sequence[FoundRow]) -> NodePath:
    """Return the deepest place that holds all of the rows."""
    shortest = min((row.path[:-1] for row in rows), key=len)
    for length in range(len(shortest), -1, -1):
        if all(row.path[:length] == shortest[:length] for row in rows):
            return shortest[:length]
    return ()


def _agree(found: object, said: object) -> bool:
    if isinstance(found, float) and isinstance(said, float):
        return abs(found - said) <= _TOLERANCE
    return found == said


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in sorted(value.items()))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
