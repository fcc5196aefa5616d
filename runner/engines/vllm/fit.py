"""From the GPUs that are here to engines: how many, how much of each, with how much context. Pure.

The report ran eight engines on four GPUs of 80 GB, two on each. How many engines there are and how large
their batches are changes no result but through rounding, so they are fitted to the machine. The context is
the protocol's and is never shortened here: where it does not fit, the user is told what would.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from runner.engines.vllm.gpu import VISIBLE_DEVICES, Gpu
from runner.engines.vllm.settings import VllmSettings, engines_a_gpu
from runner.engines.vllm.sizes import ModelSize
from runner.errors import UserError

GIB = 1 << 30
SHARED_FROM_BYTES = 70 * GIB
"""From this size on two engines share a GPU, as in the report: one prepares while the other computes."""
SHARED_FRACTION, SHARED_UTILIZATION = 0.5, 0.42
ALONE_UTILIZATION = 0.9
OVERHEAD_BYTES = 3 * GIB
"""Beside weights and cache: CUDA context, kernels, activations of the largest step. An estimate."""
TYPICAL_CONTEXT_TOKENS = 10_000
"""About what a trajectory of this kind holds on average, for the size of a batch; vLLM queues the rest."""
MOST_SEQUENCES, LEAST_SEQUENCES = 64, 4
CONTEXT_STEP_TOKENS = 4096
LEAST_CAPABILITY = (8, 0)
"""bfloat16 in hardware."""
FITTED = ("engines", "gpu_fraction", "gpu_memory_utilization", "max_num_seqs")
"""The settings that are fitted, by their names in `[engine]`."""


@dataclass(frozen=True)
class EngineFit:
    """Engines for these GPUs. `cache_tokens`, an engine's, is an estimate.

    `differs`, for people, names what is not as the profile, and with it the report, has it.
    """

    engines: int
    gpu_fraction: float
    gpu_memory_utilization: float
    context_tokens: int
    max_num_seqs: int
    cache_tokens: int
    differs: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def applied(self, settings: VllmSettings) -> VllmSettings:
        """Return the settings with what was fitted in its place."""
        return replace(settings, **{name: getattr(self, name) for name in FITTED})

    @property
    def line(self) -> str:
        """The whole of it in one line."""
        return (
            f"{self.engines} engine{'' if self.engines == 1 else 's'} of {self.gpu_fraction:g} GPU"
            f" and {self.gpu_memory_utilization:g} of its memory,"
            f" context {self.context_tokens}, batches of {self.max_num_seqs},"
            f" cache of about {self.cache_tokens:,} tokens each"
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """What is shown before a start: the engines, what differs from the report, and what to know."""
        differs = (f"unlike the report: {', '.join(self.differs)}",) if self.differs else ()
        return (self.line, *differs, *self.notes)


def fit_engines(
    gpus: Sequence[Gpu], size: ModelSize, wanted: VllmSettings, fixed: Collection[str] = ()
) -> EngineFit:
    """Return the engines that these GPUs can hold, as many as are good for them.

    `fixed` names settings of `FITTED` that somebody chose: they stay as wanted. Raises `UserError` where not
    even one engine fits, saying what would.
    """
    if not gpus:
        raise UserError("no GPU found", remedy="take the profile cpu, or name a server with --engine openai")
    _refuse_old(gpus, wanted)
    smallest = min(one.memory_bytes for one in gpus)
    for fraction, utilization in _shares(smallest, wanted, fixed):
        if size.longest(_cache_bytes(smallest, utilization, size)) >= wanted.context_tokens:
            return _fit(gpus, size, wanted, fixed, (fraction, utilization))
    raise _too_small(gpus, size, wanted, fixed)


def _refuse_old(gpus: Sequence[Gpu], wanted: VllmSettings) -> None:
    """Raise `UserError` for a GPU that cannot compute in the report's number format."""
    old = [one for one in gpus if one.capability is not None and one.capability < LEAST_CAPABILITY]
    if not old or wanted.dtype != "bfloat16":
        return
    capability = ".".join(str(part) for part in old[0].capability or ())
    raise UserError(
        f"{old[0].name} (compute capability {capability}) has no bfloat16 in hardware, which the published"
        " scores were made with",
        remedy=_leave_out(gpus, [one for one in gpus if one not in old])
        or "use a GPU of compute capability 8.0 or newer (A100, A10, L4, RTX 30 and later)",
    )


def _shares(memory_bytes: int, wanted: VllmSettings, fixed: Collection[str]) -> list[tuple[float, float]]:
    """Return fractions of a GPU with shares of its memory, the best first."""
    alone, shared = (1.0, ALONE_UTILIZATION), (SHARED_FRACTION, SHARED_UTILIZATION)
    found = [shared, alone] if memory_bytes >= SHARED_FROM_BYTES else [alone]
    if "gpu_fraction" in fixed:
        together = engines_a_gpu(wanted.gpu_fraction)
        utilization = ALONE_UTILIZATION if together == 1 else SHARED_UTILIZATION * 2 / together
        found = [(wanted.gpu_fraction, round(utilization, 3))]
    if "gpu_memory_utilization" in fixed:
        chosen = wanted.gpu_memory_utilization
        found = [(fraction, chosen) for fraction, _ in found if engines_a_gpu(fraction) * chosen <= 1]
        # One that is too large for sharing means a GPU for each.
        found = found or [(1.0, chosen)]
    return found


def _cache_bytes(memory_bytes: int, utilization: float, size: ModelSize) -> int:
    return int(memory_bytes * utilization) - size.weights_bytes - OVERHEAD_BYTES


def _fit(
    gpus: Sequence[Gpu],
    size: ModelSize,
    wanted: VllmSettings,
    fixed: Collection[str],
    share: tuple[float, float],
) -> EngineFit:
    fraction, utilization = share
    most = len(gpus) * engines_a_gpu(fraction)
    engines = wanted.engines if "engines" in fixed else most
    if engines > most:
        raise UserError(
            f"{engines} engines do not fit: {_count(gpus)} hold{'s' if len(gpus) == 1 else ''} {most}",
            remedy=f"--engines {most}: it takes longer and changes no result",
        )
    cache = _cache_bytes(min(one.memory_bytes for one in gpus), utilization, size)
    room = cache // size.sequence_bytes(min(TYPICAL_CONTEXT_TOKENS, wanted.context_tokens))
    most_sequences = min(MOST_SEQUENCES, wanted.max_num_seqs)
    sequences = min(most_sequences, max(LEAST_SEQUENCES, room))
    if "max_num_seqs" in fixed:
        sequences = wanted.max_num_seqs
    now = (engines, fraction, utilization, sequences)
    return EngineFit(
        engines=engines,
        gpu_fraction=fraction,
        gpu_memory_utilization=utilization,
        context_tokens=wanted.context_tokens,
        max_num_seqs=sequences,
        cache_tokens=max(0, cache - sequences * size.state_bytes) // size.kv_bytes_a_token,
        differs=tuple(
            f"{name} {here:g}, not {getattr(wanted, name):g}"
            for name, here in zip(FITTED, now, strict=True)
            if here != getattr(wanted, name)
        ),
        notes=tuple(_notes(gpus, size)),
    )


def _notes(gpus: Sequence[Gpu], size: ModelSize) -> list[str]:
    notes = []
    sizes = sorted({one.memory_bytes for one in gpus})
    if (sizes[-1] - sizes[0]) > GIB:
        notes.append(
            f"the GPUs differ: the smallest, of {_gib(sizes[0])}, decides for all, and of the largest"
            f" {_gib(sizes[-1] - sizes[0])} stay unused"
        )
    if any(one.is_slice for one in gpus):
        notes.append("this is a slice of a GPU (MIG): a process sees one alone")
    if size.assumed:
        notes.append("sizes are assumed: the checkpoint is not here yet")
    return notes


def _too_small(
    gpus: Sequence[Gpu], size: ModelSize, wanted: VllmSettings, fixed: Collection[str]
) -> UserError:
    """Word what would fit: other GPUs of those here, one engine a GPU, a shorter context, a larger GPU."""
    smallest = min(one.memory_bytes for one in gpus)
    fraction, utilization = max(_shares(smallest, wanted, fixed), key=lambda share: share[1])
    needed = size.weights_bytes + OVERHEAD_BYTES + size.sequence_bytes(wanted.context_tokens)
    least = needed / ALONE_UTILIZATION
    remedies = [_leave_out(gpus, [one for one in gpus if one.memory_bytes >= least])]
    if smallest >= least:
        chosen = "gpu_fraction" if fraction < 1 else "gpu_memory_utilization"
        remedies.append(f"one engine a GPU fits: leave {chosen} to the fit")
    else:
        tokens = size.longest(_cache_bytes(smallest, ALONE_UTILIZATION, size))
        tokens = tokens // CONTEXT_STEP_TOKENS * CONTEXT_STEP_TOKENS
        remedies.append(
            f"one engine a GPU with --context-tokens {tokens} would fit (the run is then no reproduction)"
            if tokens > 0
            else f"its weights alone are {_gib(size.weights_bytes)}: no context fits"
        )
        remedies.append(
            f"use GPUs of {_gib(least)} or more, or serve the model elsewhere and name it: --engine openai"
        )
    return UserError(
        f"an engine with a context of {wanted.context_tokens} tokens needs {_gib(needed)} of a GPU,"
        f" and {utilization:g} of the smallest here, of {_gib(smallest)}, is {_gib(smallest * utilization)}",
        remedy="; ".join(one for one in remedies if one),
    )


def _leave_out(gpus: Sequence[Gpu], good: Sequence[Gpu]) -> str:
    """Say how to go on with the good GPUs alone; empty where there are none."""
    names = [one.uuid if one.index is None else str(one.index) for one in good]
    if not names or len(good) == len(gpus) or None in names:
        return ""
    return f"leave it out: {VISIBLE_DEVICES}={','.join(str(name) for name in names)}"


def _count(gpus: Sequence[Gpu]) -> str:
    return f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} of {_gib(min(one.memory_bytes for one in gpus))}"


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB"
