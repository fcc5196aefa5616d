"""The model hub and the code host as addresses: which commit a revision is, and what stands in it.

Files are streamed by ourselves and not by `huggingface_hub`: that way a shard of gigabytes can be stopped at
once and continued, is watched by the same callbacks as everything else, and fails with the same few messages.
Its cache on this machine, token and environment variables are honoured.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx

from runner.artifacts.answers import Remote, shown_url
from runner.artifacts.directory import is_directory
from runner.artifacts.manifest import ArtifactFile, Github, Group, Hub, Origin, Role
from runner.artifacts.progress import FetchListener
from runner.artifacts.settings import FetchSettings
from runner.artifacts.transfer import fetch_json
from runner.errors import UserError

_COMMIT = re.compile(r"[0-9a-f]{40}")
LONGEST_NAME_BYTES = 255 - len(".") - len(".part.json") - len(".12345678")
"""What file systems take, less what is added while the file comes."""


@dataclass(frozen=True)
class HubFile:
    """What the hub says of a file; `sha256` only of large ones."""

    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Revision:
    """One commit of a model repository and its files."""

    commit: str
    files: Mapping[str, HubFile] = field(default_factory=dict)


async def resolve_revision(
    client: httpx.AsyncClient, hub: Hub, revision: str, settings: FetchSettings, listener: FetchListener
) -> Revision:
    """Ask the hub which commit a branch, tag or commit is, and what stands in it."""
    remote = Remote(
        f"{hub.repository} at {revision}",
        f"{settings.hub}/api/models/{hub.repository}/revision/{quote(revision, safe='')}?blobs=true",
        _authorization(settings),
        remedy_missing=f"check repository and revision: {_page(hub, settings)}",
        remedy_refused=_refused_remedy(hub, settings),
    )
    document = await fetch_json(client, remote, settings=settings, listener=listener)
    commit = document.get("sha") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise UserError(
            f"{shown_url(settings.hub)} does not say which commit {revision} of {hub.repository} is",
            remedy="check HF_ENDPOINT",
        )
    siblings = document.get("siblings")
    files = {
        one["rfilename"]: _hub_file(one)
        for one in (siblings if isinstance(siblings, list) else ())
        if isinstance(one, dict) and isinstance(one.get("rfilename"), str)
    }
    return Revision(commit, files)


def _hub_file(sibling: Mapping[str, object]) -> HubFile:
    lfs = sibling.get("lfs")
    size, sha256 = sibling.get("size"), lfs.get("sha256") if isinstance(lfs, dict) else None
    return HubFile(size if isinstance(size, int) else None, sha256 if isinstance(sha256, str) else None)


def hub_remote(hub: Hub, file: ArtifactFile, revision: Revision, settings: FetchSettings) -> Remote:
    """Return a file's address at a commit."""
    known = revision.files.get(file.path, HubFile())
    return Remote(
        file.path,
        f"{settings.hub}/{hub.repository}/resolve/{revision.commit}/{quote(file.path)}",
        _authorization(settings),
        size_bytes=file.size_bytes or known.size_bytes,
        remedy_missing=f"check repository and revision: {_page(hub, settings)}",
        remedy_refused=_refused_remedy(hub, settings),
    )


def github_remote(github: Github, file: ArtifactFile, settings: FetchSettings) -> Remote:
    """Return a file's address at the manifest's commit."""
    return Remote(
        file.path,
        f"{settings.github_raw}/{github.repository}/{github.commit}/{quote(file.path)}",
        size_bytes=file.size_bytes,
        remedy_missing=f"check https://github.com/{github.repository}/tree/{github.commit}",
        remedy_refused="check that the repository is public, and RECOUNT_GITHUB_RAW",
    )


def _authorization(settings: FetchSettings) -> dict[str, str]:
    return {} if settings.token is None else {"Authorization": f"Bearer {settings.token}"}


def _page(hub: Hub, settings: FetchSettings) -> str:
    return f"{shown_url(settings.hub)}/{hub.repository}"


def _refused_remedy(hub: Hub, settings: FetchSettings) -> str:
    page = _page(hub, settings)
    if settings.token is None:
        return f"it may be private, gated or misspelt: look at {page}, and set HF_TOKEN"
    return f"the token (HF_TOKEN) may not read it: look at {page}, accept its terms, or use another token"


def also_wanted(
    hub: Hub, listed: Mapping[str, object], named: tuple[ArtifactFile, ...]
) -> tuple[ArtifactFile, ...]:
    """Return the repository's other files that belong to the checkpoint, tokenizer files above all.

    Names come from a server. One that is no plain name of a file here is none of the checkpoint's.
    """
    taken = {one.path for one in named}
    return tuple(
        ArtifactFile(origin=Origin.HUB, path=path, group=Group.CHECKPOINT, role=Role.TOKENIZER)
        for path in sorted(listed)
        if path not in taken
        and _is_plain(path)
        and any(fnmatch.fnmatchcase(path, pattern) for pattern in hub.also)
    )


def _is_plain(name: str) -> bool:
    """Say whether a file of the root may be named so: no way out, nothing that a disk or terminal refuses."""
    return (
        bool(name)
        and name.isprintable()  # no control characters, no lone surrogates
        and "/" not in name
        and "\\" not in name
        and not name.startswith(".")
        and len(name.encode("utf-8")) <= LONGEST_NAME_BYTES
    )


@dataclass(frozen=True)
class CachedRevision:
    """A snapshot in the hub's own cache on this machine."""

    commit: str
    directory: Path

    def listing(self) -> dict[str, object]:
        """Return the names of its files."""
        try:
            return {path.name: None for path in self.directory.iterdir()}
        except OSError:
            return {}  # a cache that cannot be read holds nothing for us


def cached_revision(hub: Hub, revision: str, settings: FetchSettings) -> CachedRevision | None:
    """Return the snapshot of a branch, tag or commit, if the cache has one."""
    if settings.hub_cache is None:
        return None
    root = settings.hub_cache / f"models--{hub.repository.replace('/', '--')}"
    commit = revision
    if not _COMMIT.fullmatch(revision):
        try:
            commit = (root / "refs" / revision).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
    directory = root / "snapshots" / commit
    return (
        CachedRevision(commit, directory) if _COMMIT.fullmatch(commit) and is_directory(directory) else None
    )
