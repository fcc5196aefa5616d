"""Room on the disks, and whether this user may write where a run writes."""

from dataclasses import dataclass
from pathlib import Path

from anyio.to_thread import run_sync

from runner.artifacts.errors import in_words
from runner.artifacts.files import SPARE_BYTES, size_of
from runner.artifacts.manifest import Role
from runner.doctor.host import Host, Space
from runner.doctor.question import Question
from runner.doctor.report import Finding, failed, ok, warning
from runner.engines.vllm.sizes import assumed

DISK, WRITABLE = "disk", "writable"
TRAJECTORY_BYTES = 512 << 10
"""Journal, results and exports of one trajectory, with a wide margin: the report's rows are 51 KB each."""
RUN_BYTES = 64 << 20
"""Logs of engines and what else a run writes."""
ASSUMED_PROBLEMS = 100
"""Of a data set that is not here yet."""
SMALL_FILES_BYTES = 100 << 20
"""Tokenizer, data sets, sources and the report's rows."""
TIGHT_FACTOR = 2
"""With less than this times what is needed, another run may not fit."""


@dataclass(frozen=True)
class Need:
    """What would be written below a directory."""

    what: str
    path: Path
    size_bytes: int


def needs(question: Question, problems: int) -> tuple[Need, ...]:
    """Return what a run of this profile writes, and where."""
    results = RUN_BYTES + problems * question.profile.samples * TRAJECTORY_BYTES
    found = [Need("results", question.results_dir, results)]
    if question.store is not None:
        found.append(Need("data", question.data_dir, 0 if _is_here(question.data_dir) else SMALL_FILES_BYTES))
    if question.fetches_checkpoint and question.vllm is not None and question.store is not None:
        size = assumed(question.vllm.model)
        shards = [one for one in question.store.manifest.files if one.role is Role.SHARD]
        here = sum(size_of(question.store.path_of(one)) for one in shards)
        missing = 0 if size is None else max(size.weights_bytes - here, 0)
        found.append(Need("models", question.models_dir, missing))
    return tuple(found)


def _is_here(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


async def examine_disk(question: Question, host: Host, problems: int) -> Finding:
    """Hold what would be written against what is free, disk by disk."""

    def look() -> Finding:
        wanted = needs(question, problems)
        return judge_disk([(one, host.space(host.nearest(one.path))) for one in wanted])

    try:
        return await run_sync(look, abandon_on_cancel=True)
    except OSError as error:
        return failed(f"cannot look at the disk: {error.strerror or error}", "check that it is mounted")


def judge_disk(found: list[tuple[Need, Space]]) -> Finding:
    """Judge needs, those on one disk together. Pure."""
    disks: dict[int, list[tuple[Need, Space]]] = {}
    for need, space in found:
        disks.setdefault(space.device, []).append((need, space))
    full, tight, said = [], [], []
    for on_it in disks.values():
        needed, free = sum(need.size_bytes for need, _ in on_it), on_it[0][1].free_bytes
        what = " and ".join(need.what for need, _ in on_it)
        said.append(f"{what}: {in_words(needed)} of {in_words(free)} free")
        if free < needed + SPARE_BYTES:
            full.append(f"{what} ({on_it[0][0].path})")
        elif free < TIGHT_FACTOR * needed:
            tight.append(what)
    detail = "; ".join(said)
    remedy = (
        "free some, or put them on another disk: --out, --models, --data-dir (RECOUNT_MODELS for compose)"
    )
    if full:
        return failed(f"{detail}: too little for {', '.join(full)}", remedy)
    return warning(f"{detail}: tight", remedy) if tight else ok(detail)


async def examine_writable(question: Question, host: Host) -> Finding:
    """Try to write where a run writes."""
    places = [("results", question.results_dir)]
    if question.store is not None:
        places.append(("data", question.data_dir))
    if question.fetches_checkpoint:
        places.append(("models", question.models_dir))

    def look() -> list[tuple[str, Path, str | None]]:
        return [(what, path, host.try_write(host.nearest(path))) for what, path in places]

    return judge_writable(await run_sync(look, abandon_on_cancel=True), host.uid, needed=_needed(question))


def _needed(question: Question) -> frozenset[str]:
    """Return what has to be written; fetched files that are all here may stay read-only."""
    needed = {"results"}
    store = question.store
    if store is not None:
        for one in store.manifest.files:
            path = store.path_of(one)
            if one.required and one.group in question.groups and not path.exists():
                needed.add("models" if path.is_relative_to(store.checkpoint) else "data")
    return frozenset(needed)


def judge_writable(found: list[tuple[str, Path, str | None]], uid: int, *, needed: frozenset[str]) -> Finding:
    """Judge what trying to write said, None for no problem. Pure."""
    wrong = [(what, path, problem) for what, path, problem in found if problem is not None]
    bad = [one for one in wrong if one[0] in needed]
    if bad:
        told = ", ".join(f"{what} ({path}): {problem}" for what, path, problem in bad)
        return failed(
            f"user {uid} cannot write {told}",
            f"chown -R {uid} the directory, or name another: --out, --models, --data-dir",
        )
    read_only = "".join(f"; {what} is read-only, and all of it is here" for what, _, _ in wrong)
    good = ", ".join(what for what, _, problem in found if problem is None)
    return ok(f"{good} by user {uid}{read_only}")
