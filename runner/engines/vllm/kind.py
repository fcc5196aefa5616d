"""`[engine] kind = "vllm"`."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from runner.engines.base import Engine
from runner.engines.kind import EngineKind, EngineOptions, EngineSection, RunFacts
from runner.engines.vllm.settings import VllmSettings, engines_a_gpu
from runner.engines.vllm.wire import Device
from runner.errors import UserError
from runner.section import Positive, Seconds

MODEL_VARIABLE = "RECOUNT_MODEL"
"""Names the checkpoint for profiles that serve one; a container has it where a command line has --model."""


class VllmEngineSettings(EngineSection):
    """`[engine] kind = "vllm"`: the checkpoint served here, by vLLM engines under Ray.

    The engines' context is `limits.context_tokens`; an engine's own seed is `seed` plus its index.
    """

    kind: Literal["vllm"]
    model: str
    """A directory, or a repository of the Hugging Face hub."""
    revision: str | None = None
    device: Literal["cuda", "cpu"] = "cuda"
    fit: bool = False
    """Whether engines, their fractions and batches are fitted to the GPUs here; what is chosen stays."""
    engines: Positive = 1
    gpu_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    gpu_memory_utilization: Annotated[float, Field(gt=0, lt=1)] = 0.9
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    enforce_eager: bool = True
    max_num_seqs: Positive = 64
    gdn_prefill_backend: Literal["triton", "flashinfer"] | None = None
    prefix_caching: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    cpu_kv_cache_gib: Positive = 1
    start_timeout_s: Seconds = 900.0
    generation_timeout_s: Seconds = 1800.0
    starts: Positive = 5
    """Starts of one engine in a row, without a turn done in between, until it is given up."""

    @model_validator(mode="after")
    def _engines_fit_their_gpu(self) -> Self:
        together = engines_a_gpu(self.gpu_fraction)
        if self.device == "cuda" and together * self.gpu_memory_utilization > 1:
            raise ValueError(
                f"gpu_fraction puts {together} engines on a GPU, of whose memory each takes"
                f" gpu_memory_utilization, {self.gpu_memory_utilization:g}"
            )
        return self


def _build(settings: VllmEngineSettings, run: RunFacts) -> Engine:
    """Raise `UserError` for GPUs that no engine fits."""
    from runner.engines.vllm.checkpoint import Checkpoint  # noqa: PLC0415 - only where a run has one
    from runner.engines.vllm.engine import VllmEngine  # noqa: PLC0415
    from runner.engines.vllm.here import chosen, fit_here  # noqa: PLC0415

    given = settings.model_dump(exclude={"kind", "device", "fit"})
    wanted = VllmSettings(**given, device=Device(settings.device), context_tokens=run.context_tokens)
    fit = fit_here(wanted, run.overrides, checkpoint=run.checkpoint) if settings.fit else None
    checkpoint = None if run.checkpoint is None else Checkpoint(run.checkpoint, run.revision)
    fixed = chosen(run.overrides) if settings.fit else None
    return VllmEngine(wanted, fit=fit, fixed=fixed, checkpoint=checkpoint, log_dir=run.log_dir)


def _of_options(options: EngineOptions) -> dict[str, Any]:
    if not options.model:
        raise UserError(
            "--engine vllm needs a checkpoint", remedy=f"add --model DIRECTORY_OR_ID, or set {MODEL_VARIABLE}"
        )
    return {"model": options.model}


_PLACING = frozenset(
    {
        *("engines", "fit", "gpu_fraction", "gpu_memory_utilization", "max_num_seqs", "cpu_kv_cache_gib"),
        *("start_timeout_s", "generation_timeout_s", "starts"),
    }
)
"""How many there are, where, and how long they are waited for."""

KIND = EngineKind(
    VllmEngineSettings,
    _build,
    _of_options,
    serves_checkpoint=True,
    scaling=frozenset({"engines", "fit"}),
    harmless_settings=_PLACING,
    # A trajectory's turns have seeds of their own.
    harmless_identity=_PLACING
    | {"engine_seeds", "devices", "kv_cache_tokens", "nodes", "versions.python", "versions.ray"},
)
