"""The environment of the published run, to say where an engine differs from it."""

from collections.abc import Iterable

from runner.engines.vllm.wire import Device, EngineConfig, EngineFacts

PUBLISHED_VERSIONS = {
    "python": "3.10",
    "torch": "2.10.0",
    "vllm": "0.19.1",
    "transformers": "4.57.6",
    "ray": "2.56.1",
}
PUBLISHED_DTYPE = "bfloat16"
PUBLISHED_GDN_BACKEND = "triton"
_GDN_MODELS = frozenset({"qwen3_next"})


def deviations_of(config: EngineConfig, facts: Iterable[EngineFacts], model_type: str) -> tuple[str, ...]:
    """Return in what engines differ from the published ones, a sentence each.

    How many engines there are and on which GPUs says nothing: sampling is not bit-identical across batches
    and kernels anyway, and the published figures are aggregates.
    """
    found = sorted({(name, getattr(one, name)) for one in facts for name in PUBLISHED_VERSIONS})
    reasons = [
        f"{name} is {version}, the report's is {PUBLISHED_VERSIONS[name]}"
        for name, version in found
        if not is_version(version, PUBLISHED_VERSIONS[name])
    ]
    if config.device is Device.CPU:
        reasons.append("the engines run on a CPU, the report's on GPUs")
    if config.dtype != PUBLISHED_DTYPE:
        reasons.append(f"the engines compute in {config.dtype}, the report's in {PUBLISHED_DTYPE}")
    if config.prefix_caching:
        reasons.append("the engines cache prefixes, the report's do not")
    if not config.enforce_eager:
        reasons.append("the engines compile the model, the report's run it eagerly")
    gdn = config.gdn_prefill_backend
    if config.device is Device.CUDA and model_type in _GDN_MODELS and gdn != PUBLISHED_GDN_BACKEND:
        reasons.append(
            f"the engines' GDN prefill is {gdn or 'vLLM’s choice'}, the report's {PUBLISHED_GDN_BACKEND}"
        )
    return tuple(reasons)


def is_version(found: str, published: str) -> bool:
    """Say whether a version is the published one, whatever build or patch release it names behind that."""
    return found == published or found.startswith((f"{published}+", f"{published}."))
