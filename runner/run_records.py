"""What the journal's first event says of a plan. Pure, but for asking where a data set's file lies."""

from dataclasses import asdict

from runner.events import CommandRecord, DatasetRecord, ProblemRecord
from runner.plan import Plan
from runner.profile import resolve_path
from runner.resources import PROFILE_DIR

_NO_SETTINGS = ("only", "limit")
_DATA = "data."


def dataset_records(plan: Plan) -> tuple[DatasetRecord, ...]:
    """Return the data sets of a plan as a journal holds them."""
    return tuple(
        DatasetRecord(
            name=one.name,
            path=one.path.name,
            sha256=one.sha256,
            base_seed=one.base_seed,
            problems=tuple(ProblemRecord(**asdict(problem)) for problem in one.problems),
        )
        for one in plan.datasets
    )


def protocol_record(plan: Plan) -> dict[str, str]:
    """Return the protocol of a plan as a journal holds it."""
    return {
        "rules": plan.profile.protocol,
        "pack": plan.pack_path.name,
        "pack_sha256": plan.pack_sha256,
    }


def command_record(plan: Plan) -> CommandRecord:
    """Return what makes the same plan again."""
    path, given = plan.profile_path, plan.overrides
    found = {one.name: resolve_path(one.path, path) for one in plan.profile.datasets}
    if plan.artifacts is not None:
        found |= plan.artifacts.datasets
    return CommandRecord(
        profile=path.stem if path.parent == PROFILE_DIR else str(path.absolute()),
        overrides={
            setting: value
            for setting, value in given.items()
            if setting not in _NO_SETTINGS and not setting.startswith(_DATA)
        },
        # A pinned file from another place is no override, and has to be found again all the same.
        data={
            one.name: str(one.path.absolute())
            for one in plan.datasets
            if one.path.absolute() != found[one.name].absolute()
        },
        only=tuple(given.get("only") or ()),
        limit=given.get("limit"),
        allow_unverified=plan.artifacts is not None and bool(plan.artifacts.unverified),
    )
