"""What a run cost: time of GPUs, tokens, and what of both a right answer took. Pure."""

from collections.abc import Mapping
from typing import Any

from runner.engine_state import TurnSums
from runner.engines.vllm.settings import engines_a_gpu
from runner.results.figures import ratio
from runner.state import RunState
from runner.statistics import RIGHT

_HOUR_S = 3600.0
_HOURS_DIGITS = 6


def cost_results(state: RunState) -> dict[str, Any]:
    """Return the cost of all work that was done, also of attempts that failed afterwards.

    GPU hours are those that the run's engines kept GPUs from others, at work or not; null where the engine is
    not ours, since nobody tells what stands behind a server.
    """
    produced = TurnSums()
    for engine in state.engines.by_name.values():
        produced.add(engine.produced)
    scored = [one.terminated for one in state.trajectories.values() if one.terminated is not None]
    right = sum(1 for end in scored if end.score >= RIGHT)
    gpus = gpus_of({} if state.started is None else state.started.profile)
    return {
        "wall_hours": round(state.wall_s / _HOUR_S, _HOURS_DIGITS),
        "gpus": gpus,
        "gpu_hours": None if gpus is None else round(gpus * state.wall_s / _HOUR_S, _HOURS_DIGITS),
        "prompt_tokens": produced.prompt_tokens,
        "completion_tokens": produced.completion_tokens,
        "completion_tokens_per_s": ratio(produced.completion_tokens, state.wall_s),
        "completion_tokens_per_trajectory": ratio(produced.completion_tokens, len(scored)),
        "completion_tokens_per_right_answer": ratio(produced.completion_tokens, right),
    }


def gpus_of(profile: Mapping[str, Any]) -> int | None:
    """Return how many GPUs the engines of a profile take: 0 on a CPU, None for engines that are not ours."""
    engine = profile.get("engine")
    if not isinstance(engine, Mapping) or engine.get("kind") != "vllm":
        return None
    if engine.get("device") == "cpu":
        return 0
    engines, fraction = engine.get("engines"), engine.get("gpu_fraction")
    if not isinstance(engines, int) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        return None
    return -(-engines // engines_a_gpu(fraction))
