"""Finding rows in a document whose layout is not known beforehand.

A row is an object with a score that belongs to a problem: it names the problem itself, or stands below an
object, or under a key, that does. What such a row lacks (data set, sample) is taken from where it stands. A
list that holds rows holds nothing else: an element without a score is a broken file, not something to step
over.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

_SCORE_FIELDS = ("score", "reward", "correct", "is_correct")
_SCORE_LIST_FIELDS = ("scores", "rewards", "correct")
_PROBLEM_FIELDS = ("task_id", "problem_id", "question_id", "id")
_KEY_FIELD = "key"
_TASK_FIELDS = ("task", "problem")
_INDEX_FIELD = "row_index"
_SAMPLE_FIELDS = ("sample_index", "sample_idx", "sample_id", "sample")
_DATASET_FIELDS = ("dataset", "data_set", "dataset_name", "benchmark", "source")
_SAMPLE_IN_KEY = re.compile(r"(?P<problem>.+?)[:#/@]_?(?:sample[_-]?)?(?P<sample>\d+)", re.DOTALL)
_SAMPLE_NAME = re.compile(r"(?:sample[_-]?|run[_-]?|trial[_-]?)?(\d+)", re.IGNORECASE)

Path = tuple[str | int, ...]


class BrokenRowsError(ValueError):
    """A document cannot be read as rows; the message names the place."""


@dataclass(frozen=True)
class FoundRow:
    """One row as it stands, with what its surroundings say about it."""

    path: Path
    problem: str | None
    """None where only `row_index` says which problem it is."""
    row_index: int | None
    sample: int | None
    """What the row or an object around it says."""
    sample_hint: int | None
    """What a list's order or a key suggests, where nothing says it."""
    score: float
    termination: str | None
    score_method: str | None
    dataset_fields: tuple[str, ...]
    """Contents of fields that name a data set, nearest first."""

    @property
    def place(self) -> str:
        """Where it stands."""
        return place(self.path)


@dataclass(frozen=True)
class _Context:
    problem: str | None = None
    row_index: int | None = None
    sample: int | None = None
    sample_hint: int | None = None
    dataset_fields: tuple[str, ...] = ()


def find_rows(document: object) -> list[FoundRow]:
    """Return all rows of a decoded JSON document, in its order; raise `BrokenRowsError`."""
    try:
        return list(_walk(document, (), _Context()))
    except RecursionError:
        raise BrokenRowsError("it is nested too deeply") from None


def place(path: Path) -> str:
    """Return a path as JSONPath would write it."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _walk(node: object, path: Path, context: _Context) -> Iterator[FoundRow]:
    if isinstance(node, dict):
        yield from _walk_object(node, path, context)
    elif isinstance(node, list):
        yield from _walk_list(node, path, context)


def _walk_object(node: Mapping[str, Any], path: Path, context: _Context) -> Iterator[FoundRow]:
    context = _with_fields(node, path, context)
    if _is_row(node, context):
        yield _row(node, path, context)
        return
    if context.problem is not None:
        for name in _SCORE_LIST_FIELDS:
            if _is_list_of_scores(node.get(name)):
                for index, value in enumerate(node[name]):
                    yield _scalar_row(value, (*path, name, index), replace(context, sample_hint=index))
                return
    keyed = _is_mapping_of_rows(node, context)
    for key, value in node.items():
        if keyed:
            problem, sample = _split_key(key)
            inside = replace(context, problem=problem, sample=sample)
        else:
            sample_name = _SAMPLE_NAME.fullmatch(key)
            inside = replace(context, sample_hint=int(sample_name.group(1))) if sample_name else context
        yield from _walk(value, (*path, key), inside)


def _walk_list(node: Sequence[Any], path: Path, context: _Context) -> Iterator[FoundRow]:
    if not any(
        isinstance(one, dict) and _is_row(one, _with_fields(one, (*path, index), context))
        for index, one in enumerate(node)
    ):
        for index, one in enumerate(node):
            # Lists of lists, or of objects that hold lists, are most often one list a sample.
            yield from _walk(one, (*path, index), replace(context, sample_hint=index))
        return
    rows: list[FoundRow] = []
    for index, one in enumerate(node):
        here = (*path, index)
        if not isinstance(one, dict):
            raise BrokenRowsError(f"{place(here)} is no object, unlike the rows beside it")
        its = _with_fields(one, here, context)
        if not any(name in one for name in _SCORE_FIELDS):
            raise BrokenRowsError(f"{place(here)} has no score, unlike the rows beside it")
        if its.problem is None and its.row_index is None:
            raise BrokenRowsError(f"{place(here)} names no problem, unlike the rows beside it")
        rows.append(_row(one, here, its))
    if len(rows) > 1 and len({(row.problem, row.row_index) for row in rows}) == 1:
        # All samples of one problem, in their order.
        rows = [replace(row, sample_hint=index) for index, row in enumerate(rows)]
    yield from rows


def _is_row(node: Mapping[str, Any], context: _Context) -> bool:
    if context.problem is None and context.row_index is None:
        return False
    if not any(name in node and not isinstance(node[name], list | dict) for name in _SCORE_FIELDS):
        return False
    return not any(
        isinstance(value, list) and value and all(_has_score(one) for one in value) for value in node.values()
    )


def _has_score(node: object) -> bool:
    return isinstance(node, dict) and any(name in node for name in _SCORE_FIELDS)


def _is_mapping_of_rows(node: Mapping[str, Any], context: _Context) -> bool:
    """Say whether keys name the problems: every value has a score and none names a problem itself."""
    return (
        context.problem is None
        and len(node) > 0
        and all(_has_score(value) and _own_problem(value) == (None, None) for value in node.values())
    )


def _is_list_of_scores(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, int | float) for one in value)


def _with_fields(node: Mapping[str, Any], path: Path, context: _Context) -> _Context:
    """Return the context with what an object says about itself."""
    problem, sample_of_key = _own_problem(node)
    problem_of_key, _ = (
        _split_key(node[_KEY_FIELD]) if isinstance(node.get(_KEY_FIELD), str) else (None, None)
    )
    if problem is not None and problem_of_key is not None and problem != problem_of_key:
        raise BrokenRowsError(f"{place(path)} names two problems, {problem!r} and {problem_of_key!r}")
    sample = _own_sample(node)
    index = node.get(_INDEX_FIELD)
    names = tuple(str(node[name]) for name in _DATASET_FIELDS if isinstance(node.get(name), str))
    if sample is None:
        sample = sample_of_key
    return _Context(
        problem=problem if problem is not None else context.problem,
        row_index=index if isinstance(index, int) and not isinstance(index, bool) else context.row_index,
        sample=sample if sample is not None else context.sample,
        sample_hint=context.sample_hint,
        dataset_fields=(*names, *context.dataset_fields),
    )


def _own_problem(node: Mapping[str, Any]) -> tuple[str | None, int | None]:
    candidates = [node.get(name) for name in _PROBLEM_FIELDS]
    candidates += [node[name].get("id") for name in _TASK_FIELDS if isinstance(node.get(name), dict)]
    sample: int | None = None
    if isinstance(node.get(_KEY_FIELD), str):
        candidates.append(node[_KEY_FIELD])
        _, sample = _split_key(node[_KEY_FIELD])
    for value in candidates:
        if isinstance(value, str) and value:
            problem, own = _split_key(value)
            return problem, sample if own is None else own
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value), sample
    return None, sample


def _own_sample(node: Mapping[str, Any]) -> int | None:
    for name in _SAMPLE_FIELDS:
        value = node.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and (match := _SAMPLE_NAME.fullmatch(value)):
            return int(match.group(1))
    return None


def _split_key(key: str) -> tuple[str, int | None]:
    """Return problem and sample of a key like `dapo_1:sample03`."""
    match = _SAMPLE_IN_KEY.fullmatch(key)
    return (key, None) if match is None else (match.group("problem"), int(match.group("sample")))


def _row(node: Mapping[str, Any], path: Path, context: _Context) -> FoundRow:
    scores = {name: _score(node[name], (*path, name)) for name in _SCORE_FIELDS if name in node}
    if len(set(scores.values())) > 1:
        said = ", ".join(f"{name} {value:g}" for name, value in scores.items())
        raise BrokenRowsError(f"{place(path)} has two scores: {said}")
    return FoundRow(
        path=path,
        problem=context.problem,
        row_index=context.row_index,
        sample=context.sample,
        sample_hint=context.sample_hint,
        score=next(iter(scores.values())),
        termination=_text(node.get("termination_reason")),
        score_method=_text(node.get("score_method")),
        dataset_fields=context.dataset_fields,
    )


def _scalar_row(value: object, path: Path, context: _Context) -> FoundRow:
    return _row({_SCORE_FIELDS[0]: value}, path, context)


def _score(value: object, path: Path) -> float:
    """Return a score. One below 0 counts as 0, as the report's own summary counts it."""
    if not isinstance(value, int | float):
        raise BrokenRowsError(f"{place(path)} is no number but {str(value)[:40]!r}")
    if not isfinite(value) or value > 1.0:
        raise BrokenRowsError(f"{place(path)} is {value}, no score between 0 and 1")
    return max(0.0, float(value))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
