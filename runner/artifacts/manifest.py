"""What belongs to a report, as data: addresses, sizes and hashes, and what the files must say.

A manifest holds facts only, never a line of the files themselves.
"""

import hashlib
import sys
from enum import Enum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import Self, override

from runner.errors import UserError
from runner.paths import is_file
from runner.resources import PROFILE_DIR

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE_SHA256 = "file_sha256"
MANIFEST_DIR = PROFILE_DIR.parent / "artifacts"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
CommitId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
RepositoryId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]


class Group(str, Enum):
    """What a file is for; `recount fetch --only` takes these words."""

    CHECKPOINT = "checkpoint"
    DATASETS = "datasets"
    PROTOCOL = "protocol"
    REPORT = "report"


class Origin(str, Enum):
    """Which of the two repositories a file stands in."""

    HUB = "hub"
    GITHUB = "github"


class Role(str, Enum):
    """What a file is within its group, where something depends on it."""

    SHARD = "shard"
    CONFIG = "config"
    INDEX = "index"
    TOKENIZER = "tokenizer"
    CHAT_TEMPLATE = "chat_template"
    GENERATION_CONFIG = "generation_config"
    LINEAGE = "lineage"
    CARD_RESULTS = "card_results"
    DATASET = "dataset"
    MESSAGES_SOURCE = "messages_source"
    LOOP_SOURCE = "loop_source"
    ROWS = "rows"
    PROVENANCE = "provenance"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Hub(_Section):
    """`[hub]`: the model repository. Files of the root that match `also` come with it, unpinned."""

    repository: RepositoryId
    revision: str = "main"
    also: tuple[str, ...] = ()


class Github(_Section):
    """`[github]`: the code repository, at one commit."""

    repository: RepositoryId
    commit: CommitId


class ArtifactFile(_Section):
    """One `[[files]]`. `path` is the one within its repository; `place` the one within the data directory.

    Files of the hub keep their path below the checkpoint's directory. One that is not `required` may be
    missing from the repository without an error.
    """

    origin: Origin
    path: str
    group: Group
    role: Role
    name: str = ""
    """A data set's, as profiles call it."""
    place: str = ""
    sha256: Sha256 | None = None
    size_bytes: Annotated[int, Field(ge=1)] | None = None
    required: bool = True

    @field_validator("path", "place")
    @classmethod
    def _stays_inside(cls, written: str) -> str:
        path = PurePosixPath(written)
        if path.is_absolute() or ".." in path.parts or not written.isprintable():
            raise ValueError("has to be a relative path without .. and control characters")
        return written

    @model_validator(mode="after")
    def _has_its_place(self) -> Self:
        if (self.origin is Origin.GITHUB) != bool(self.place):
            raise ValueError("files from github have a place, files of the hub have none")
        if (self.role is Role.DATASET) != bool(self.name):
            raise ValueError("data sets have a name, and nothing else has")
        return self


class Pack(_Section):
    """`[pack]`: the protocol pack that is made of the two sources, and hashes of what it must say."""

    place: str
    sha256: Sha256
    system_prompt_sha256: Sha256 | None = None
    user_prompt_template_sha256: Sha256 | None = None


class Weights(_Section):
    """`[weights]`: what the card says the weights are."""

    parameters: Annotated[int, Field(ge=1)]
    tensors: Annotated[int, Field(ge=1)] | None = None
    """In the safetensors files; an engine that fuses some holds fewer."""


class Claim(_Section):
    """One `[[claims]]`: what the file at `path` must say wherever it names one of `keys`.

    `within` narrows it to places below these words (`dapo`, say). Several right answers are possible where
    a file may hold one figure or another.
    """

    path: str
    what: str
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    one_of: Annotated[tuple[float | str, ...], Field(min_length=1)]
    within: tuple[str, ...] = ()
    every: bool = True
    """Whether all that is found must agree, or one place is enough."""
    tolerance: Annotated[float, Field(ge=0)] = 0.0


class Lineage(_Section):
    """`[[lineage]]`: the updates that the file at `path` must tell of, as generations without a gap."""

    path: str
    first_generation: int
    last_generation: int

    @property
    def updates(self) -> int:
        """How many updates that makes."""
        return self.last_generation - self.first_generation + 1


class Manifest(_Section):
    """A whole manifest."""

    name: str
    profiles: tuple[str, ...]
    hub: Hub
    github: Github
    files: Annotated[tuple[ArtifactFile, ...], Field(min_length=1)]
    pack: Pack | None = None
    weights: Weights | None = None
    claims: tuple[Claim, ...] = ()
    lineage: tuple[Lineage, ...] = ()
    _file_sha256: str | None = PrivateAttr(default=None)

    @property
    def file_sha256(self) -> str | None:
        """The SHA-256 of the file that this was read from; None for one that no file was read for."""
        return self._file_sha256

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Take the file's hash from whoever read the file."""
        if isinstance(context, dict):
            self._file_sha256 = context.get(_FILE_SHA256)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        places = [(one.origin, one.place or one.path) for one in self.files]
        if len(set(places)) < len(places):
            raise ValueError("two files have one place")
        known = {one.path for one in self.files}
        for path in (*(one.path for one in self.claims), *(one.path for one in self.lineage)):
            if path not in known:
                raise ValueError(f"a claim names {path}, which is no file of this manifest")
        if self.pack is not None and not {Role.MESSAGES_SOURCE, Role.LOOP_SOURCE} <= {
            one.role for one in self.files
        }:
            raise ValueError("a pack is made of two sources, and files with these roles are missing")
        return self

    def of_group(self, group: Group) -> tuple[ArtifactFile, ...]:
        """Return the files of a group in the manifest's order."""
        return tuple(one for one in self.files if one.group is group)

    def of_role(self, role: Role) -> ArtifactFile | None:
        """Return the first file with a role."""
        return next((one for one in self.files if one.role is role), None)

    @cached_property
    def shards(self) -> tuple[ArtifactFile, ...]:
        """The files of weights."""
        return tuple(one for one in self.files if one.role is Role.SHARD)


def bundled_manifests() -> list[str]:
    """Return the names of the manifests that come with the package, sorted."""
    return sorted(path.stem for path in MANIFEST_DIR.glob("*.toml"))


def load_manifest(name_or_path: str | Path) -> Manifest:
    """Read and check a manifest, by name or file; raise `UserError` naming what is wrong in it."""
    bundled = MANIFEST_DIR / f"{name_or_path}.toml"
    path = bundled if "/" not in str(name_or_path) and is_file(bundled) else Path(name_or_path)
    if not is_file(path):
        raise UserError(
            f"no manifest {name_or_path}",
            remedy=f"name one of {', '.join(bundled_manifests())}, or a TOML file",
        )
    try:
        written = path.read_bytes()
        document = tomllib.loads(written.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"manifest {path}: {error}", remedy="a manifest is a UTF-8 TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"manifest {path}: not TOML: {error}", remedy="mend the line that it names"
        ) from error
    try:
        return Manifest.model_validate(document, context={_FILE_SHA256: hashlib.sha256(written).hexdigest()})
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(part) for part in found['loc']) or 'manifest'}: {found['msg']}"
            for found in error.errors()
        ]
        raise UserError(
            f"manifest {path}: " + "\n  ".join(lines), remedy="docs/artifacts.md lists every setting"
        ) from error


def bundled_manifest_sha256(name: str) -> str | None:
    """Return the SHA-256 of the bundled manifest of this name, or None where there is none.

    A manifest that calls itself by a bundled one's name and has another hash is another manifest.
    """
    return load_manifest(name).file_sha256 if name in bundled_manifests() else None


def manifest_for(profile: str) -> Manifest | None:
    """Return the bundled manifest of a profile's name, or None where nothing has to be fetched."""
    return next(
        (one for name in bundled_manifests() if profile in (one := load_manifest(name)).profiles), None
    )
