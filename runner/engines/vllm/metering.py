"""Counts what an engine did, out of vLLM's own statistics. Runs in the actor."""

from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from runner.engines.reports import ReplicaStats
from runner.engines.vllm.gpu import GpuUsage
from runner.engines.vllm.wire import Foreign


@dataclass
class Meter:
    """Totals since the engine started, and its state after its last step."""

    running: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0

    def scheduled(self, stats: Foreign) -> None:
        """Take in what the scheduler tells of one step."""
        self.running = stats.num_running_reqs
        self.kv_cache_usage = stats.kv_cache_usage
        self.prefix_cache_queries += stats.prefix_cache_stats.queries
        self.prefix_cache_hits += stats.prefix_cache_stats.hits

    def stepped(self, stats: Foreign) -> None:
        """Take in what one step did."""
        self.prompt_tokens += stats.num_prompt_tokens
        self.generation_tokens += stats.num_generation_tokens
        self.preemptions += stats.num_preempted_reqs

    def read(self, gpu: GpuUsage | None, *, unfinished: int, caches_prefixes: bool) -> ReplicaStats:
        """Return the figures, with those of the GPU where there is one.

        `unfinished` is how many requests vLLM's front end knows. Turns that end at a stop string end there,
        and the scheduler tells of it only with its next step, which an idle engine does not make.
        """
        running = min(self.running, unfinished)
        return ReplicaStats(
            running=running,
            waiting=unfinished - running,
            prompt_tokens=self.prompt_tokens,
            generation_tokens=self.generation_tokens,
            preemptions=self.preemptions,
            kv_cache_usage=self.kv_cache_usage if unfinished else 0.0,
            prefix_cache_queries=self.prefix_cache_queries if caches_prefixes else None,
            prefix_cache_hits=self.prefix_cache_hits if caches_prefixes else None,
            gpu_utilization=None if gpu is None else gpu.utilization,
            gpu_memory_used_bytes=None if gpu is None else gpu.memory_used_bytes,
            gpu_memory_total_bytes=None if gpu is None else gpu.memory_total_bytes,
        )


def stat_logger(meter: Meter) -> Callable[[Foreign, int], Foreign]:
    """Return what vLLM makes its statistics loggers with: one that writes into `meter`."""
    from vllm.v1.metrics.loggers import StatLoggerBase  # noqa: PLC0415 - only where vLLM is

    class MeteringLogger(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Foreign, engine_index: int = 0) -> None:
            pass

        @override
        def record(
            self,
            scheduler_stats: Foreign,
            iteration_stats: Foreign,
            mm_cache_stats: Foreign = None,
            engine_idx: int = 0,
        ) -> None:
            if scheduler_stats is not None:
                meter.scheduled(scheduler_stats)
            if iteration_stats is not None:
                meter.stepped(iteration_stats)

        @override
        def log_engine_initialized(self) -> None:
            pass

    return MeteringLogger
