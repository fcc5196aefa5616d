"""From a profile and the command line to what will run: everything read and checked, nothing started."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.artifacts import Artifacts
from runner.artifacts.fetch import PACK_NAME
from runner.artifacts.manifest import bundled_manifest_sha256
from runner.comparison import BUNDLED, expectation_lines_of, read_comparison
from runner.datasets import Dataset, load_dataset
from runner.engines.base import Engine, Sampling
from runner.engines.kind import RunFacts
from runner.engines.registry import kind_of
from runner.errors import UserError
from runner.events import ComparisonRecord
from runner.fingerprint import changed_settings
from runner.hashing import sha256_file
from runner.paths import is_file
from runner.profile import Profile, find_profile, load_profile, resolve_path
from runner.protocol.prompt import PackError, ProtocolPack
from runner.resources import PROFILE_DIR, PROTOCOL_DIR, bundled_profiles
from runner.scheduler import plan_jobs
from runner.trajectory import Job, Limits, Rules
from sandbox import Policy
from sandbox.policy import bundled_policies, load_policy


@dataclass(frozen=True)
class Plan:
    """A run that has not started. `overrides` are the settings that differ from the profile's file."""

    profile: Profile
    profile_path: Path
    overrides: Mapping[str, Any]
    pack: ProtocolPack
    pack_path: Path
    pack_sha256: str
    datasets: tuple[Dataset, ...]
    jobs: tuple[Job, ...]
    policy: Policy
    """What the profile wants commands to run under; a broker has its own."""
    comparison: ComparisonRecord | None = None
    """What the scores will be held against; None for a profile that names nothing."""
    artifacts: Artifacts | None = None
    """What was fetched for this run, where something was."""

    @property
    def deviations(self) -> tuple[str, ...]:
        """Why this run may not be called a reproduction: settings that were changed, files that are not the
        published ones. How much runs at once changes no result."""
        changed = tuple(
            f"changed: {setting} = {value}"
            for setting, value in self.overrides.items()
            if not self._is_of_scale(setting)
        )
        return (*changed, *self._of_its_own(), *self._unverified())

    def _is_of_scale(self, setting: str) -> bool:
        """Say whether a setting says how much runs at once."""
        section, _, name = setting.partition(".")
        if section == "engine":
            return name in kind_of(self.profile.engine).scaling
        return section == "concurrency" and bool(name)

    @property
    def _is_held_against_the_report(self) -> bool:
        """Whether the published figures are those that come with Recount; figures of one's own are held
        against whatever one likes."""
        settings = self.profile.verdict
        return settings is not None and settings.published.startswith(BUNDLED)

    def _of_its_own(self) -> tuple[str, ...]:
        """Say in what a profile's file differs from the bundled profile that the figures are of."""
        if self.profile_path.parent == PROFILE_DIR or not self._is_held_against_the_report:
            return ()
        if self.profile.name not in bundled_profiles():
            return (f"the profile {self.profile.name} is a file of its own, and no report was made with it",)
        own = load_profile(str(self.profile_path)).model_dump(mode="json")
        bundled = load_profile(self.profile.name).model_dump(mode="json")
        return tuple(f"the profile's file: {one}" for one in changed_settings(bundled, own))

    def _unverified(self) -> tuple[str, ...]:
        artifacts = self.artifacts
        found = () if artifacts is None else artifacts.unverified
        if self.comparison is not None:
            found = (*found, *self._unhashed())
        return tuple(f"unverified: {one}" for one in found)

    def _unhashed(self) -> Iterator[str]:
        """Say what has no published hash that it was held against, where it decides what is compared."""
        artifacts = self.artifacts
        if artifacts is not None:
            yield from (f"{one} has no hash in the manifest" for one in artifacts.unpinned_inputs)
            bundled = bundled_manifest_sha256(artifacts.manifest)
            if self._is_held_against_the_report and artifacts.manifest_sha256 != bundled:
                yield f"the manifest {artifacts.manifest} is not the bundled one"
        hashed = artifacts is not None and artifacts.checkpoint is not None
        if not hashed and kind_of(self.profile.engine).serves_checkpoint:
            yield "no hash of the checkpoint was taken before the run"
        fetched = artifacts is not None and artifacts.sha256.get(PACK_NAME) == self.pack_sha256
        if not fetched and self._is_held_against_the_report:
            yield "the protocol pack is not the one that is made of the fetched sources"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the verdict has to know besides."""
        if self.artifacts is None:
            return ()
        unpinned = ", ".join(self.artifacts.unpinned)
        said = (one for one in self.artifacts.notes if not one.startswith(("unpinned: ", "unverified: ")))
        return (*((f"unpinned, for want of a published hash: {unpinned}",) if unpinned else ()), *said)

    def expectation_lines(self) -> list[str]:
        """Return what this run will be able to tell; none for a profile that names no published figures."""
        if self.comparison is None:
            return []
        problems = {one.name: [problem.id for problem in one.problems] for one in self.datasets}
        return expectation_lines_of(self.comparison, self.profile.name, self.profile.samples, problems)

    @property
    def rules(self) -> Rules:
        """What is the same for every trajectory."""
        return Rules(
            pack=self.pack,
            limits=Limits(**self.profile.limits.model_dump()),
            sampling=Sampling(**self.profile.sampling.model_dump()),
        )


def make_plan(
    name_or_path: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    data: Mapping[str, Path] | None = None,
    only: tuple[str, ...] = (),
    limit: int | None = None,
    artifacts: Artifacts | None = None,
    published_rows: Path | None = None,
) -> Plan:
    """Read and check everything a run needs but engine and sandbox.

    `data` names other files for data sets; one with another hash than the pinned is allowed and recorded.
    `only` keeps some data sets, `limit` the first problems of each. `artifacts` is what was fetched for it:
    taken where the profile looks for the same, which changes no setting. `published_rows` names the rows to
    be held against, else the fetched ones. Raises `UserError`.
    """
    settings = dict(overrides or {})
    profile = load_profile(name_or_path, settings)
    path = find_profile(name_or_path)
    replaced = dict(data or {})
    check_names(profile, (*replaced, *only))
    fetched = _fetched_for(profile, artifacts)
    # A file that was let pass although its hash is another is told of by `Artifacts.unverified`.
    lenient = artifacts is not None and bool(artifacts.unverified)
    datasets = tuple(
        load_dataset(
            one.name,
            replaced.get(one.name) or fetched.get(one.name) or resolve_path(one.path, path),
            base_seed=one.base_seed,
            sha256=None if one.name in replaced or (lenient and one.name in fetched) else one.sha256,
            limit=limit,
        )
        for one in profile.datasets
        if not only or one.name in only
    )
    made = None if artifacts is None or "pack" in settings else artifacts.pack
    if made is not None and made.name == Path(profile.pack).name:
        pack_path, pack = made, read_pack(made)
    else:
        pack_path, pack = load_pack(profile.pack, path)
    pinned = {one.name: one.sha256 for one in profile.datasets}
    settings |= {
        f"data.{one.name}": str(replaced[one.name])
        for one in datasets
        # The pinned file from another place is the pinned file.
        if one.name in replaced and one.sha256 != pinned[one.name]
    }
    settings |= {"only": list(only)} if only else {}
    settings |= {"limit": limit} if limit is not None else {}
    plan = Plan(
        profile=profile,
        profile_path=path,
        overrides=settings,
        pack=pack,
        pack_path=pack_path,
        pack_sha256=sha256_file(pack_path),
        datasets=datasets,
        jobs=tuple(plan_jobs(datasets, profile.samples)),
        policy=policy_of(profile, path),
        comparison=read_comparison(
            profile.verdict, path, datasets, published_rows or (None if artifacts is None else artifacts.rows)
        ),
        artifacts=artifacts,
    )
    if artifacts is not None:
        _check_unchanged(plan, artifacts, fetched, rows_are_fetched=published_rows is None)
    return plan


def _fetched_for(profile: Profile, artifacts: Artifacts | None) -> dict[str, Path]:
    """Return the fetched files that are the ones the profile names; it may name a file of its own."""
    if artifacts is None:
        return {}
    named = {one.name: Path(one.path).name for one in profile.datasets}
    return {name: path for name, path in artifacts.datasets.items() if named.get(name) == path.name}


def _check_unchanged(
    plan: Plan, artifacts: Artifacts, fetched: Mapping[str, Path], *, rows_are_fetched: bool
) -> None:
    """Raise `UserError` where what was read is not what was hashed: a record believes size and times."""
    read = [(one.path, one.sha256) for one in plan.datasets if one.path == fetched.get(one.name)]
    if plan.pack_path == artifacts.pack:
        read.append((plan.pack_path, plan.pack_sha256))
    if plan.comparison is not None and rows_are_fetched and artifacts.rows is not None:
        rows = plan.comparison.rows
        # Rows that were refused are told of in the verdict; a changed file is not the report's.
        read.append((artifacts.rows, sha256_file(artifacts.rows) if rows is None else rows.sha256))
    hashed = frozenset(artifacts.sha256.values())
    for path, sha256 in read:
        if sha256 not in hashed:
            raise UserError(
                f"{path} is not the file any more that was fetched and hashed: its SHA-256 is {sha256}",
                remedy="remove it, or see all that changed with `recount verify artifacts`; then fetch again",
            )


def check_names(profile: Profile, names: Iterable[str]) -> None:
    """Raise `UserError` for a data set that the profile does not have."""
    known = [one.name for one in profile.datasets]
    for name in names:
        if name not in known:
            raise UserError(
                f"profile {profile.name} has no data set {name!r}", remedy=f"name one of {', '.join(known)}"
            )


def policy_of(profile: Profile, profile_path: Path) -> Policy:
    """Return the policy that a profile wants its commands to run under."""
    return load_policy(_policy_name(profile.sandbox.policy, profile_path))


def _policy_name(written: str, profile_path: Path) -> str:
    return written if written in bundled_policies() else str(resolve_path(written, profile_path))


def load_pack(written: str, profile_path: Path) -> tuple[Path, ProtocolPack]:
    """Read the protocol pack that a profile names: `bundled:NAME` or a file."""
    if written.startswith("bundled:"):
        path = PROTOCOL_DIR / f"{written.removeprefix('bundled:')}.json"
    else:
        path = resolve_path(written, profile_path)
    return path, read_pack(path)


def read_pack(path: Path, *, option: str = "--pack") -> ProtocolPack:
    """Read a protocol pack file; raise `UserError` naming it and the `option` that names another."""
    try:
        if path.exists() and not is_file(path):
            raise UserError(f"protocol pack {path} is no file", remedy=f"name one with {option}")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"protocol pack {path}: {error.strerror or error}",
            remedy="it holds the protocol's sentences, which Recount does not ship:"
            f" recount fetch PROFILE makes it, {option} names another",
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"protocol pack {path}: not JSON: {error}", remedy="fetch it again") from error
    try:
        return ProtocolPack.from_mapping(document, str(path))
    except PackError as error:
        raise UserError(str(error), remedy="fetch the pack again, or mend the key it names") from error


def build_engine(plan: Plan, *, log_dir: Path | None = None) -> Engine:
    """Return the profile's engine, not started. Engines that have logs of their own write them to `log_dir`.

    Raises `UserError` for a script that does not fit, and for GPUs that no engine fits.
    """
    settings, artifacts = plan.profile.engine, plan.artifacts
    run = RunFacts(
        context_tokens=plan.profile.limits.context_tokens,
        keys=tuple(job.key for job in plan.jobs),
        find=lambda written: resolve_path(written, plan.profile_path),
        overrides=plan.overrides,
        checkpoint=None if artifacts is None else artifacts.checkpoint,
        revision=None if artifacts is None else artifacts.revision,
        log_dir=log_dir,
    )
    return kind_of(settings).build(settings, run)
