"""What engines tell of themselves while a run goes on: for the journal, the views and the results."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class ReplicaStats:
    """What a replica tells of itself. Totals count from its start; None is what it cannot tell.

    `kv_cache_usage` and `gpu_utilization` are shares from 0 to 1. Figures of a GPU are the whole GPU's, also
    where two engines share it.
    """

    running: int | None = None
    waiting: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    preemptions: int | None = None
    kv_cache_usage: float | None = None
    prefix_cache_queries: int | None = None
    prefix_cache_hits: int | None = None
    gpu_utilization: float | None = None
    gpu_memory_used_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None


class ReplicaState(str, Enum):
    """Where a replica is in its life, for journals and views."""

    WAITING = "waiting"
    """No node of the cluster has room for it; it starts as soon as one has."""
    STARTING = "starting"
    SERVING = "serving"
    LOST = "lost"
    """It waits to be started again."""
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class ReplicaUp:
    """A replica serves. `start_s` is how long that took, `starts` counts from 1.

    `node` of a cluster; None where there is but this machine, or nobody knows.
    """

    name: str
    start_s: float
    starts: int
    node: str | None = None


@dataclass(frozen=True)
class ReplicaDown:
    """A replica is gone, or did not come up. `requeued` turns wait for another place."""

    name: str
    cause: str
    requeued: int
    given_up: bool


ReplicaReport = ReplicaUp | ReplicaDown


@dataclass(frozen=True)
class ReplicaSnapshot:
    """How a replica has been used so far, by the pool's own count. Times in seconds since it first served.

    `busy_s` is the time with at least one turn in it, `batch_s` the integral of turns over time (so that
    `batch_s / busy_s` is the mean batch), `serving_s` the time it could have worked.
    """

    name: str
    state: ReplicaState
    running: int
    turns: int
    prompt_tokens: int
    completion_tokens: int
    serving_s: float
    busy_s: float
    batch_s: float
    starts: int
    stats: ReplicaStats | None = None
    node: str | None = None


@dataclass(frozen=True)
class PoolSnapshot:
    """All replicas, and how many turns wait for a place in one."""

    queued: int
    replicas: tuple[ReplicaSnapshot, ...]
