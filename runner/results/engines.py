"""How well the engines were used: tokens, batches, idle time, losses; for each and for the run. Pure.

A figure is None where nobody told what it is made of, never 0: a server behind HTTP says nothing of its
batches.
"""

from collections.abc import Iterable
from typing import Any

from runner.engine_state import Counter, EngineState, NodeState, Number, PoolUse, TurnSums, largest, plus
from runner.engines.reports import ReplicaState
from runner.results.figures import ratio, seconds
from runner.results.times import trajectory_times
from runner.state import RunState


def engine_results(state: RunState) -> dict[str, Any]:
    """Return the figures of the run, of each of its engines, and of where trajectories spent their time."""
    engines = sorted(state.engines.by_name.values(), key=lambda one: one.name)
    return {
        "run": _run(state, engines),
        "by_engine": {one.name: _engine(one, state.wall_s) for one in engines},
        "by_node": {name: _node(state, name, one) for name, one in sorted(state.engines.by_node.items())},
        "trajectories": trajectory_times(state),
    }


def _run(state: RunState, engines: list[EngineState]) -> dict[str, Any]:
    produced = TurnSums()
    for one in engines:
        produced.add(one.produced)
    uses = [use for one in engines if (use := one.use) is not None]
    told = state.engines
    return {
        "wall_s": round(state.wall_s, 3),
        **_figures(produced, sum(uses, PoolUse()) if uses else None, engines, state.wall_s),
        "mean_queue": ratio(told.queue_turn_s, told.queue_s),
        "largest_queue": told.largest_queue,
        "given_up": sum(1 for one in engines if one.state is ReplicaState.GIVEN_UP),
    }


def _engine(engine: EngineState, wall_s: float) -> dict[str, Any]:
    return {
        "state": None if engine.state is None else engine.state.value,
        "node": engine.node,
        **_figures(engine.produced, engine.use, [engine], wall_s),
        "last_losses": [
            {
                "at": loss.at,
                "cause": loss.cause,
                "requeued": loss.requeued,
                "given_up": loss.given_up,
                "back_after_s": seconds(loss.back_after_s),
            }
            for loss in engine.last_losses
        ],
    }


def _node(state: RunState, name: str, node: NodeState) -> dict[str, Any]:
    """Return what the engines of a node of a cluster produced while they were on it."""
    produced = node.produced
    return {
        "engines": len(state.engines.on_node(name)),
        "turns": produced.turns,
        "prompt_tokens": produced.prompt_tokens,
        "completion_tokens": produced.completion_tokens,
        "prompt_tokens_per_s": ratio(produced.prompt_tokens, state.wall_s),
        "completion_tokens_per_s": ratio(produced.completion_tokens, state.wall_s),
        "generate_s": seconds(produced.generate_s),
        "losses": node.losses,
        "actions": node.actions,
    }


def _figures(
    produced: TurnSums, use: PoolUse | None, engines: list[EngineState], wall_s: float
) -> dict[str, Any]:
    """Return what one engine and a run have in common; `engines` are those that are told of."""
    queries = _total(one.prefix_cache_queries for one in engines)
    hits = _total(one.prefix_cache_hits for one in engines)
    samples = sum(one.gpu_utilization_samples for one in engines)
    return {
        "turns": produced.turns,
        "prompt_tokens": produced.prompt_tokens,
        "completion_tokens": produced.completion_tokens,
        "cached_tokens": produced.cached_tokens,
        "prompt_tokens_per_s": ratio(produced.prompt_tokens, wall_s),
        "completion_tokens_per_s": ratio(produced.completion_tokens, wall_s),
        "completion_tokens_per_busy_s": None if use is None else ratio(use.completion_tokens, use.busy_s),
        "generate_s": seconds(produced.generate_s),
        "queue_s": seconds(produced.queue_s),
        "prefill_s": seconds(produced.prefill_s),
        "decode_s": seconds(produced.decode_s),
        "serving_s": None if use is None else seconds(use.serving_s),
        "busy_s": None if use is None else seconds(use.busy_s),
        "idle_share": None if use is None else _idle_share(use),
        "mean_batch": None if use is None else ratio(use.batch_s, use.busy_s),
        "restarts": sum(one.restarts for one in engines),
        "losses": sum(one.losses for one in engines),
        "preemptions": _total(one.preemptions for one in engines),
        "prefix_cache_queries": queries,
        "prefix_cache_hits": hits,
        "prefix_cache_hit_share": None if queries is None or hits is None else ratio(hits, queries),
        "largest_kv_cache_usage": _largest(one.largest_kv_cache_usage for one in engines),
        "mean_gpu_utilization": ratio(sum(one.gpu_utilization_sum for one in engines), samples),
        "largest_gpu_memory_used_bytes": _largest(one.largest_gpu_memory_used_bytes for one in engines),
        "gpu_memory_total_bytes": _largest(one.gpu_memory_total_bytes for one in engines),
    }


def _idle_share(use: PoolUse) -> float | None:
    busy_share = ratio(use.busy_s, use.serving_s)
    return None if busy_share is None else round(1.0 - busy_share, 4)


def _total(counters: Iterable[Counter]) -> int | None:
    total: int | None = None
    for counter in counters:
        total = plus(total, counter.total)
    return total


def _largest(values: Iterable[Number | None]) -> Number | None:
    found: Number | None = None
    for value in values:
        found = largest(found, value)
    return found
