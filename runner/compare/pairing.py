"""Which trajectories of two runs belong together, and whether they may be held against each other at all."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runner.compare.model import Paired, ScorePair, Setting, Side
from runner.errors import UserError
from runner.events import DatasetRecord, ProblemRecord
from runner.state import RunState

_PROTOCOL = ("rules", "pack_sha256")
_PROTOCOL_SECTIONS = ("limits", "sampling")
_NAMED = 3


def check_comparable(baseline: Side, other: Side) -> None:
    """Raise `UserError` for runs whose pairs would not be pairs: other problems under the same ids, or none
    in common."""
    ours, theirs = _datasets(baseline), _datasets(other)
    common = [name for name in ours if name in theirs]
    if not common:
        raise UserError(
            f"{baseline.name} and {other.name} have no data set in common:"
            f" {', '.join(ours) or 'none'} and {', '.join(theirs) or 'none'}",
            remedy="compare runs over the same data sets",
        )
    shared = 0
    for name in common:
        problems, others = _problems(ours[name]), _problems(theirs[name])
        both = [one for one in problems if one in others]
        shared += len(both)
        changed = [one for one in both if _content(problems[one]) != _content(others[one])]
        if changed:
            raise UserError(
                f"{name} is not the same data set in {baseline.name} and {other.name}: question or answer of"
                f" {_some(changed)} differ",
                remedy="compare runs over the same file; its SHA-256 is in evaluation_results.json",
            )
    if not shared:
        raise UserError(
            f"{baseline.name} and {other.name} have no problem in common",
            remedy="compare runs over the same problems",
        )


def pair(baseline: Side, other: Side) -> list[Paired]:
    """Pair what both runs planned, by problem and sample, data set by data set."""
    ours, theirs = _datasets(baseline), _datasets(other)
    samples = min(baseline.started.samples, other.started.samples)
    found = []
    for name in (one for one in ours if one in theirs):
        others = _problems(theirs[name])
        keys = [
            key
            for key in baseline.state.planned()
            if key.dataset == name and key.problem_id in others and key.sample < samples
        ]
        pairs, left_out = [], 0
        for key in keys:
            place = (key.dataset, key.problem_id, key.sample)
            left, right = baseline.scores.get(place), other.scores.get(place)
            if left is None or right is None:
                left_out += 1
            else:
                pairs.append(ScorePair(key, left, right))
        found.append(Paired(name, tuple(pairs), left_out))
    if not any(one.pairs for one in found):
        raise UserError(
            f"{baseline.name} and {other.name} have no scored trajectory in common",
            remedy="let the runs go on: `recount eval` writes a score as each trajectory ends",
        )
    return found


def warnings_of(baseline: Side, other: Side, paired: list[Paired]) -> Iterator[str]:
    """Yield what a reader of the comparison has to know, a sentence each."""
    yield from _dataset_warnings(baseline, other)
    yield from _protocol_warnings(baseline, other)
    left_out = sum(one.left_out for one in paired)
    if left_out:
        yield f"{left_out} pairs are left out, for want of a score in at least one run"


def _dataset_warnings(baseline: Side, other: Side) -> Iterator[str]:
    ours, theirs = _datasets(baseline), _datasets(other)
    for side, mine, others in ((baseline, ours, theirs), (other, theirs, ours)):
        for name in mine:
            if name not in others:
                yield f"{name} is in {side.name} alone and left out"
        if side.at_work:
            yield f"{side.name} is at work: its scores so far are compared"
        elif not _is_complete(side.state):
            yield f"{side.name} is not complete"
    for name in (one for one in ours if one in theirs):
        if ours[name].sha256 != theirs[name].sha256:
            yield f"{name} comes from different files, with the same problems where both have them"
        if ours[name].base_seed != theirs[name].base_seed:
            yield f"{name} has other base seeds in {baseline.name} and {other.name}"


def _protocol_warnings(baseline: Side, other: Side) -> Iterator[str]:
    if baseline.started.samples != other.started.samples:
        least = min(baseline.started.samples, other.started.samples)
        yield (
            f"{baseline.started.samples} and {other.started.samples} samples a problem:"
            f" the first {least} are paired"
        )
    ours, theirs = baseline.started.protocol, other.started.protocol
    differs = ", ".join(one for one in _PROTOCOL if ours.get(one) != theirs.get(one))
    if differs:
        yield f"the protocols differ ({differs}): a difference may be the protocol's, not the model's"
    for section in _PROTOCOL_SECTIONS:
        changed = _changed(_section(baseline, section), _section(other, section))
        if changed:
            yield f"{section} differ: {', '.join(changed)}"


def settings_of(baseline: Side, other: Side) -> list[Setting]:
    """Return what else is not the same, by its dotted name."""
    found = []
    ours, theirs = _flat(baseline), _flat(other)
    for name in sorted({*ours, *theirs}):
        left, right = ours.get(name, "-"), theirs.get(name, "-")
        if left != right:
            found.append(Setting(name, left, right))
    return found


def _flat(side: Side) -> dict[str, str]:
    started = side.started
    document = {
        "recount": started.recount,
        "samples": started.samples,
        "protocol": started.protocol,
        "engine": started.engine,
        "sandbox": {"policy_sha256": started.sandbox.get("policy_sha256")},
        "profile": {
            key: value for key, value in started.profile.items() if key in {"name", *_PROTOCOL_SECTIONS}
        },
        "base_seed": {record.name: record.base_seed for record in started.datasets},
    }
    flat: dict[str, str] = {}
    left: list[tuple[str, Any]] = [("", document)]
    while left:
        place, value = left.pop()
        if isinstance(value, Mapping) and value:
            left += [(f"{place}.{key}" if place else str(key), one) for key, one in value.items()]
        else:
            flat[place] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _is_complete(state: RunState) -> bool:
    return all(
        key in state.trajectories and state.trajectories[key].terminated is not None
        for key in state.planned()
    )


def _datasets(side: Side) -> dict[str, DatasetRecord]:
    return {record.name: record for record in side.started.datasets}


def _problems(record: DatasetRecord) -> dict[str, ProblemRecord]:
    return {problem.id: problem for problem in record.problems}


def _content(problem: ProblemRecord) -> tuple[str, str]:
    return problem.question, problem.answer


def _section(side: Side, name: str) -> Mapping[str, Any]:
    found = side.started.profile.get(name)
    return found if isinstance(found, Mapping) else {}


def _changed(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} {ours.get(key)} and {theirs.get(key)}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
