"""What a run is, as a TOML file: data sets, protocol, limits, sampling, engine, sandbox.

Everything a user can write is checked here, with the file and the setting named. A profile holds no
secret: API keys come from the environment.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, ValidationError, field_validator, model_validator
from typing_extensions import Self

from runner.engines.kind import EngineSection
from runner.engines.registry import KINDS
from runner.errors import UserError
from runner.paths import is_file
from runner.resources import PROFILE_DIR, bundled_dataset, bundled_profiles
from runner.section import Positive, Seconds, Section

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

if TYPE_CHECKING:
    EngineSettings = EngineSection
else:
    EngineSettings = Annotated[
        Union[tuple(one.settings for one in KINDS.values())], Field(discriminator="kind")  # noqa: UP007
    ]


class LimitSettings(Section):
    """The protocol's limits, `[limits]`."""

    max_turns: Positive
    context_tokens: Positive
    max_tokens_per_turn: Positive
    tool_timeout_s: Seconds
    observation_limit_chars: Positive

    @model_validator(mode="after")
    def _a_turn_fits_the_context(self) -> Self:
        if self.max_tokens_per_turn >= self.context_tokens:
            raise ValueError("max_tokens_per_turn leaves no room for a prompt in context_tokens")
        return self


class SamplingSettings(Section):
    """`[sampling]`, all of it required: a default would be somebody else's choice."""

    temperature: Annotated[float, Field(ge=0)]
    top_p: Annotated[float, Field(gt=0, le=1)]
    top_k: Annotated[int, Field(ge=-1)]
    min_p: Annotated[float, Field(ge=0, le=1)]
    presence_penalty: Annotated[float, Field(ge=-2, le=2)]
    repetition_penalty: Annotated[float, Field(gt=0)]


class DatasetSettings(Section):
    """One `[[datasets]]`. `sha256`, where given, is enforced."""

    name: Name
    path: str
    base_seed: int
    sha256: Sha256 | None = None


class ConcurrencySettings(Section):
    """`[concurrency]`: what runs at once. Permits for generation and for tools are apart."""

    trajectories: Positive = 64
    generations: Positive = 64
    tools: Positive = 8


class RetrySettings(Section):
    """`[retry]`: how often a trajectory starts again when our own side failed."""

    attempts: Positive = 3
    wait_s: Annotated[float, Field(ge=0)] = 1.0
    wait_cap_s: Seconds = 30.0


class SandboxSettings(Section):
    """`[sandbox]`: the policy that commands run under, by name or file (`recount sandbox policy`).

    A profile names it and cannot loosen it: limits and isolation are the sandbox's own configuration.
    """

    policy: str = "report"


class VerdictSection(Section):
    """`[verdict]`: what the scores are held against; without it a run ends without a verdict."""

    published: str
    """The published figures: `bundled:NAME` or a file."""
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Differences within it are small enough to be called reproduced."""


class Profile(Section):
    """A whole profile."""

    name: Name
    description: str = ""
    protocol: Literal["esopt-math-react"] = "esopt-math-react"
    """The rules: action grammar, observations, answer extraction, score, seeds."""
    pack: str
    """The protocol's sentences: `bundled:NAME` or a file."""
    scorer: Literal["exact"] = "exact"
    samples: Positive
    limits: LimitSettings
    sampling: SamplingSettings
    datasets: Annotated[tuple[DatasetSettings, ...], Field(min_length=1, strict=False)]
    engine: EngineSettings
    concurrency: ConcurrencySettings = ConcurrencySettings()
    retry: RetrySettings = RetrySettings()
    sandbox: SandboxSettings = SandboxSettings()
    verdict: VerdictSection | None = None

    @field_validator("datasets")
    @classmethod
    def _names_are_unique(cls, datasets: tuple[DatasetSettings, ...]) -> tuple[DatasetSettings, ...]:
        names = [one.name for one in datasets]
        if len(set(names)) < len(names):
            raise ValueError("two data sets have one name")
        return datasets


def find_profile(name_or_path: str) -> Path:
    """Return the file of a bundled profile or of a path; raise `UserError` listing what there is."""
    bundled = PROFILE_DIR / f"{name_or_path}.toml"
    if "/" not in name_or_path and is_file(bundled):
        return bundled
    path = Path(name_or_path)
    if is_file(path):
        return path
    raise UserError(
        f"no profile {name_or_path!r}", remedy=f"name one of {', '.join(bundled_profiles())}, or a TOML file"
    )


def load_profile(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Read and check a profile; `overrides` maps dotted settings (`limits.max_turns`) to values.

    Raises `UserError` that names file, setting and what is expected.
    """
    path = find_profile(name_or_path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"profile {path}: {error}", remedy="a profile is a UTF-8 TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"profile {path}: not TOML: {error}", remedy="mend the line it names") from error
    for setting, value in (overrides or {}).items():
        _override(document, setting, value)
    try:
        return Profile.model_validate(document)
    except ValidationError as error:
        raise UserError(
            f"profile {path}: {_explain(error)}", remedy="docs/profiles.md lists every setting"
        ) from error


def _override(document: dict[str, Any], setting: str, value: object) -> None:
    *sections, last = setting.split(".")
    for section in sections:
        inner = document.setdefault(section, {})
        if not isinstance(inner, dict):
            return  # the file has a value where a section belongs, which checking it will name
        document = inner
    document[last] = value


def _explain(error: ValidationError) -> str:
    """Word pydantic's findings a line each: setting, what is wrong with it, what was written."""
    lines = []
    # Into the place of a setting of `[engine]` pydantic puts its kind, which nobody wrote there.
    wrong = error.errors()
    for found in wrong:
        # A list counts only items that are right: with one that is not, it seems too short besides.
        if found["type"] == "too_short" and any(_lies_below(one["loc"], found["loc"]) for one in wrong):
            continue
        place = ".".join(str(part) for part in found["loc"] if part not in KINDS) or "profile"
        if found["type"] == "extra_forbidden":
            lines.append(f"{place}: no such setting")
        elif found["type"] == "missing":
            lines.append(f"{place}: is missing")
        else:
            shown = repr(found["input"])
            lines.append(f"{place}: {found['msg']} (written: {shown[:60]})")
    return lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)


def _lies_below(place: tuple[int | str, ...], whole: tuple[int | str, ...]) -> bool:
    return len(place) > len(whole) and place[: len(whole)] == whole


def resolve_path(written: str, profile_path: Path) -> Path:
    """Return the file that a profile means: `bundled:NAME` ours, else beside the profile, else from here."""
    if written.startswith("bundled:"):
        return bundled_dataset(written.removeprefix("bundled:"))
    path = Path(written)
    beside = profile_path.parent / path
    return path if path.is_absolute() or not is_file(beside) else beside
