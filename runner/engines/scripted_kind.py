"""`[engine] kind = "scripted"`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from runner.engines.base import Engine
from runner.engines.kind import EngineKind, EngineOptions, EngineSection, RunFacts
from runner.errors import UserError
from runner.section import Seconds


class ScriptedEngineSettings(EngineSection):
    """`[engine] kind = "scripted"`: completions from a file instead of a model."""

    kind: Literal["scripted"]
    script: str
    latency_s: Annotated[float, Field(ge=0)] = 0.0
    tokens_per_s: Seconds | None = None


def _build(settings: ScriptedEngineSettings, run: RunFacts) -> Engine:
    """Raise `UserError` for a script that does not fit the run."""
    from runner.engines.scripted import Script, ScriptedEngine  # noqa: PLC0415 - only where a run has one
    from runner.engines.scripted_cluster import ScriptedClusterEngine  # noqa: PLC0415
    from runner.engines.vllm.here import is_on_cluster  # noqa: PLC0415

    path = run.find(settings.script)
    engine = ScriptedEngine(
        Script.read(path),
        context_tokens=run.context_tokens,
        latency_s=settings.latency_s,
        tokens_per_s=settings.tokens_per_s,
        source=path.name,
    )
    engine.require(run.keys)
    return ScriptedClusterEngine(engine) if is_on_cluster() else engine


def _of_options(options: EngineOptions) -> dict[str, Any]:
    if options.script is None:
        raise UserError("--engine scripted needs a script", remedy="add --script FILE")
    return {"script": options.script}


KIND = EngineKind(
    ScriptedEngineSettings,
    _build,
    _of_options,
    harmless_settings=frozenset({"script", "latency_s", "tokens_per_s"}),
    # A script has its hash; over a cluster it is played by engines on nodes.
    harmless_identity=frozenset({"source", "trajectories", "engines", "nodes"}),
)
