"""`recount fetch`: bring what a profile needs from outside, each file checked by its hash."""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from runner.artifacts import Artifacts, Group, Manifest, Store, fetch, load_manifest, manifest_for
from runner.artifacts.errors import AGAIN
from runner.artifacts.fetch import ALL_GROUPS
from runner.artifacts.settings import FetchSettings
from runner.clean import clean_text
from runner.cli.completion import complete_profile
from runner.cli.fetch_views import fetch_listener
from runner.cli.output import line, out
from runner.engines.vllm.kind import VllmEngineSettings
from runner.errors import ExitCode, InterruptedRunError, UserError
from runner.profile import Profile, load_profile
from runner.signals import watch_signals

EPILOG = """Examples:

  recount fetch final4

  recount fetch final4 --only datasets --only protocol

  recount fetch final4 --from /mnt/brought

Environment: HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and the proxies' variables are honoured; \
RECOUNT_GITHUB_RAW names a mirror of raw.githubusercontent.com.

Exit codes: 0 all is here and right, 2 something you can mend, 3 network or server, 130 stopped. Stopped or \
failed at any moment, the same command goes on where it was."""

ManifestOption = Annotated[
    str | None,
    typer.Option("--manifest", envvar="RECOUNT_MANIFEST", help="A manifest's name or file, if another."),
]
ModelsOption = Annotated[
    Path, typer.Option("--models", envvar="RECOUNT_MODELS", help="Where checkpoints lie, a directory each.")
]
DataOption = Annotated[
    Path, typer.Option("--data-dir", envvar="RECOUNT_DATA", help="Where data sets and protocol lie.")
]


def fetch_command(
    profile: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE",
            help="interval25, final4, or a TOML file.",
            autocompletion=complete_profile,
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Take the files from here; no network is used."),
    ] = None,
    only: Annotated[list[Group] | None, typer.Option("--only", help="Only this group (repeatable).")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of the model repository.")
    ] = None,
    allow_unverified: Annotated[
        bool,
        typer.Option(
            "--allow-unverified",
            help="Take files that are not the published ones; every run with them is marked for good.",
        ),
    ] = False,
    models: ModelsOption = Path("models"),
    data: DataOption = Path("datasets"),
    manifest: ManifestOption = None,
) -> None:
    """Fetch what PROFILE needs and does not come with Recount, and verify it."""
    loaded = load_profile(profile)
    chosen = find_manifest(loaded, manifest)
    if chosen is None:
        line(f"profile {loaded.name} has nothing to fetch: what it needs comes with Recount or its engine")
        return
    store = Store(chosen, models, data)
    settings = FetchSettings.from_environment()
    groups = frozenset(only) if only else ALL_GROUPS

    async def run() -> list[Artifacts]:
        done: list[Artifacts] = []
        async with watch_signals() as stop:
            with stop.guard(), fetch_listener(out, line) as listener:
                artifacts = await fetch(
                    chosen,
                    store,
                    groups=groups,
                    source=source,
                    revision=revision or _revision_of(loaded),
                    allow_unverified=allow_unverified,
                    listener=listener,
                    settings=settings,
                )
                done.append(artifacts)
        return done

    done = anyio.run(run)
    if not done:
        raise InterruptedRunError("stopped before everything was here", remedy=AGAIN)
    _summarize(done[0])
    raise typer.Exit(ExitCode.OK)


def find_manifest(profile: Profile, named: str | None) -> Manifest | None:
    """Return the manifest that is named, else the profile's own; None if it needs none."""
    return load_manifest(named) if named is not None else manifest_for(profile.name)


def manifest_of_run(profile: Profile, named: str | None) -> Manifest | None:
    """Return the manifest of a run's files. One that the environment names is for its own profiles alone."""
    found = find_manifest(profile, named)
    return found if found is None or profile.name in found.profiles else None


def required_manifest(profile: str, named: str | None) -> Manifest:
    """Return a profile's manifest; raise `UserError` where it has none."""
    found = load_manifest(named) if named is not None else manifest_for(load_profile(profile).name)
    if found is None:
        raise UserError(
            f"profile {profile} fetches nothing that could be verified", remedy="name interval25 or final4"
        )
    return found


def _revision_of(profile: Profile) -> str | None:
    return profile.engine.revision if isinstance(profile.engine, VllmEngineSettings) else None


def _summarize(artifacts: Artifacts) -> None:
    for note in artifacts.notes:
        line(clean_text(note, keep_lines=False))
    if artifacts.checkpoint is not None:
        at = f" at {artifacts.revision}" if artifacts.revision else ""
        line(f"checkpoint in {artifacts.checkpoint}{at}")
    if artifacts.pack is not None:
        line(f"protocol pack {artifacts.pack}")
    line(f"{len(artifacts.sha256)} files are here and verified as far as hashes are published")
