"""What a module tells of its kind of engine: the settings of `[engine]`, how one is built of them, and what
the rest has to know of it.

A module of a kind is loaded with every profile, whichever engine that names. So it imports nothing at its own
level but what settings are made of; what serves a model is imported by `build`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from runner.engines.base import Engine, TrajectoryKey
from runner.section import Section


class EngineSection(Section):
    """`[engine]`, whatever its kind; a kind's own has `kind: Literal["its-name"]`."""

    kind: str


@dataclass(frozen=True)
class RunFacts:
    """What an engine is told of the run that it is built for."""

    context_tokens: int
    keys: tuple[TrajectoryKey, ...]
    """The trajectories that it will be asked for."""
    find: Callable[[str], Path]
    """Finds a file that the profile names."""
    overrides: Mapping[str, Any]
    """Settings that were chosen in the place of the profile's, by dotted name."""
    checkpoint: Path | None = None
    """Where the profile's checkpoint was fetched to, where it was."""
    revision: str | None = None
    """The commit of its files."""
    log_dir: Path | None = None
    """Where engines write logs of their own."""


@dataclass(frozen=True)
class EngineOptions:
    """What a command line says beside `--engine KIND`; None or empty where it does not."""

    model: str | None = None
    base_urls: tuple[str, ...] = ()
    script: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are said."""
        written = {"model": self.model, "base_urls": list(self.base_urls), "script": self.script}
        return {name: value for name, value in written.items() if value}


def _no_servers(_: EngineSection) -> Mapping[str, str]:
    return {}


SectionT = TypeVar("SectionT", bound=EngineSection)


@dataclass(frozen=True)
class EngineKind(Generic[SectionT]):
    """What a module tells of its engine; `KIND` in that module."""

    settings: type[SectionT]
    build: Callable[[SectionT, RunFacts], Engine]
    """Makes it of its settings, not started; raises `UserError` for what cannot be served."""
    of_options: Callable[[EngineOptions], dict[str, Any]] | None = None
    """Makes settings of a command line, or raises `UserError` that names what is missing. Without it they are
    the options that were given, and checking the profile names the rest."""
    servers: Callable[[SectionT], Mapping[str, str]] = _no_servers
    """The servers that have to answer before a run, each with the page that the doctor asks for."""
    serves_checkpoint: bool = False
    """Whether it serves a checkpoint's files itself, whose hashes a reproduction wants to know."""
    scaling: frozenset[str] = frozenset()
    """Settings that say how much runs at once: changed, the run is a reproduction all the same."""
    harmless_settings: frozenset[str] = frozenset()
    """Settings that change no result: a run may go on with others."""
    harmless_identity: frozenset[str] = frozenset()
    """Of what the engine tells of itself, what changes no result."""

    @property
    def name(self) -> str:
        """The kind, as a profile writes it."""
        return str(get_args(self.settings.model_fields["kind"].annotation)[0])

    def section(self, options: EngineOptions) -> dict[str, Any]:
        """Return `[engine]` as `--engine KIND` and the options beside it mean it; raise `UserError`."""
        given = options.given if self.of_options is None else self.of_options(options)
        return {"kind": self.name, **given}
