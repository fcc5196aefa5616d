"""What a run's state keeps of its engines: reduced event by event, bounded however long the journal is.

Two sources are kept apart. Turns in the journal say what an engine produced, also where nothing else is known
of it (a server, a script). Samples say how a pool's replicas were used. Both count all work, also that of
attempts which failed afterwards: the engine did it. The line of samples itself stays in the journal.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

from runner.engines.reports import ReplicaState
from runner.events import EngineDown, EngineSample, EngineUp, EngineUseRecord, TurnDone

LOSSES_KEPT = 20
"""How many losses of one engine are kept with their causes; more are only counted."""

EngineEvent = EngineUp | EngineDown | EngineSample
Number = TypeVar("Number", int, float)


@dataclass
class TurnSums:
    """Sums over turns. None where no turn told; turns that did not tell add nothing. Times in seconds."""

    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    generate_s: float = 0.0
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None

    def add(self, turn: "TurnDone | TurnSums") -> None:
        """Take in one turn, or other sums."""
        self.turns += turn.turns if isinstance(turn, TurnSums) else 1
        self.prompt_tokens += turn.prompt_tokens
        self.completion_tokens += turn.completion_tokens
        self.cached_tokens = plus(self.cached_tokens, turn.cached_tokens)
        self.generate_s += turn.generate_s
        self.queue_s = plus(self.queue_s, turn.queue_s)
        self.prefill_s = plus(self.prefill_s, turn.prefill_s)
        self.decode_s = plus(self.decode_s, turn.decode_s)


@dataclass(frozen=True)
class PoolUse:
    """How an engine was used while the run was at work, by the pool's count. Times in seconds.

    `batch_s` is the integral over time of turns in the batch.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    serving_s: float = 0.0
    busy_s: float = 0.0
    batch_s: float = 0.0

    def __add__(self, other: "PoolUse") -> "PoolUse":
        """Return the use of both."""
        return PoolUse(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            serving_s=self.serving_s + other.serving_s,
            busy_s=self.busy_s + other.busy_s,
            batch_s=self.batch_s + other.batch_s,
        )


@dataclass
class EngineLoss:
    """One time that an engine was gone or did not come up. `back_after_s` is None while it is not back."""

    at: float
    cause: str
    requeued: int
    given_up: bool
    back_after_s: float | None = None


@dataclass
class Counter:
    """A total that begins at 0 again whenever its engine does; None until it is told once."""

    total: int | None = None
    _newest: int = 0

    def restart(self) -> None:
        """What is told next counts from 0."""
        self._newest = 0

    def tell(self, value: int | None) -> None:
        """Take in what the engine tells."""
        if value is not None:
            # Smaller than before: it started again, and nobody has said so yet.
            grown = value - self._newest if value >= self._newest else value
            self.total, self._newest = (self.total or 0) + grown, value


@dataclass
class EngineState:
    """One engine: where it is in its life, what it produced, how it was used. Shares from 0 to 1."""

    name: str
    state: ReplicaState | None = None
    """None where nobody tells (a server, a script)."""
    node: str | None = None
    """Of a cluster, the newest that it was on; what it did before on another counts for this one."""
    restarts: int = 0
    losses: int = 0
    last_losses: deque[EngineLoss] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))
    produced: TurnSums = field(default_factory=TurnSums)
    sample: EngineUseRecord | None = None
    preemptions: Counter = field(default_factory=Counter)
    prefix_cache_queries: Counter = field(default_factory=Counter)
    prefix_cache_hits: Counter = field(default_factory=Counter)
    largest_kv_cache_usage: float | None = None
    gpu_utilization_sum: float = 0.0
    gpu_utilization_samples: int = 0
    largest_gpu_memory_used_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None
    _earlier: PoolUse | None = None
    _before_run_s: float = 0.0
    """Of the newest sample's `serving_s`: while the run had not begun. Other engines were starting."""

    @property
    def use(self) -> PoolUse | None:
        """How it was used, over all starts of the run; None where no sample tells."""
        one = self.sample
        if one is None:
            return self._earlier
        now = PoolUse(
            prompt_tokens=one.prompt_tokens,
            completion_tokens=one.completion_tokens,
            serving_s=max(one.serving_s - self._before_run_s, one.busy_s),
            busy_s=one.busy_s,
            batch_s=one.batch_s,
        )
        return now if self._earlier is None else self._earlier + now

    def begin(self) -> None:
        """The run starts (again) with engines that count from 0."""
        self._earlier, self.sample, self.state = self.use, None, None
        self._restart_counters()

    def up(self, event: EngineUp) -> None:
        """It serves."""
        self.state = ReplicaState.SERVING
        self.node = event.node
        if event.starts == 1:
            return
        self.restarts += 1
        for loss in self.last_losses:
            if loss.back_after_s is None and not loss.given_up:
                loss.back_after_s = max(event.at - loss.at, 0.0)

    def down(self, event: EngineDown) -> None:
        """It is gone."""
        self.state = ReplicaState.GIVEN_UP if event.given_up else ReplicaState.LOST
        self.losses += 1
        self.last_losses.append(EngineLoss(event.at, event.cause, event.requeued, event.given_up))

    def used(self, record: EngineUseRecord, since_begin_s: float) -> None:
        """Take in a sample, `since_begin_s` after the run (or its newest start) began."""
        if self.sample is None:
            self._before_run_s = max(record.serving_s - since_begin_s, 0.0)
        elif record.starts != self.sample.starts:
            self._restart_counters()
        self.sample, self.state, self.node = record, record.state, record.node
        stats = record.stats
        if stats is None:
            return
        self.preemptions.tell(stats.preemptions)
        self.prefix_cache_queries.tell(stats.prefix_cache_queries)
        self.prefix_cache_hits.tell(stats.prefix_cache_hits)
        self.largest_kv_cache_usage = largest(self.largest_kv_cache_usage, stats.kv_cache_usage)
        if stats.gpu_utilization is not None:
            self.gpu_utilization_sum += stats.gpu_utilization
            self.gpu_utilization_samples += 1
        used_bytes = largest(self.largest_gpu_memory_used_bytes, stats.gpu_memory_used_bytes)
        self.largest_gpu_memory_used_bytes = used_bytes
        if stats.gpu_memory_total_bytes is not None:
            self.gpu_memory_total_bytes = stats.gpu_memory_total_bytes

    def _restart_counters(self) -> None:
        for counter in (self.preemptions, self.prefix_cache_queries, self.prefix_cache_hits):
            counter.restart()


@dataclass
class NodeState:
    """One node of a cluster: what its engines produced while they were there, how often one was lost, and how
    many commands ran in its sandboxes."""

    produced: TurnSums = field(default_factory=TurnSums)
    losses: int = 0
    actions: int = 0

    def is_bereft(self, engines: int) -> bool:
        """Say whether it had engines and has none now; a node may well have sandboxes alone."""
        return not engines and (self.produced.turns > 0 or self.losses > 0)


@dataclass
class EnginesState:
    """All engines of a run by name, in the order in which they were first heard of."""

    by_name: dict[str, EngineState] = field(default_factory=dict)
    by_node: dict[str, NodeState] = field(default_factory=dict)
    """Empty on one machine. An engine that moved counts where it was."""
    queued: int | None = None
    """Turns that waited for a place when the newest sample was taken."""
    largest_queue: int | None = None
    queue_turn_s: float = 0.0
    """Integral over time of waiting turns; each sample stands until the next. Over `queue_s` seconds."""
    queue_s: float = 0.0
    _begun_at: float = 0.0
    _sampled_at: float | None = None

    def begin(self, at: float) -> None:
        """The run starts, or starts again, with engines that count from 0."""
        self._begun_at, self._sampled_at, self.queued = at, None, None
        for engine in self.by_name.values():
            engine.begin()

    def count(self, turn: TurnDone) -> None:
        """Count a turn for the engine that generated it."""
        engine = self._engine(turn.engine)
        engine.produced.add(turn)
        if engine.node is not None:
            self._node(engine.node).produced.add(turn)
        if turn.tool is not None and turn.tool.node is not None:
            self._node(turn.tool.node).actions += 1

    def apply(self, event: EngineEvent) -> None:
        """Take in what engines tell; any name may come first by any of these."""
        if isinstance(event, EngineUp):
            self._engine(event.name).up(event)
            if event.node is not None:
                self._node(event.node)
        elif isinstance(event, EngineDown):
            engine = self._engine(event.name)
            engine.down(event)
            if engine.node is not None:
                self._node(engine.node).losses += 1
        else:
            self._sample(event)

    def _sample(self, event: EngineSample) -> None:
        if self._sampled_at is not None and self.queued is not None:
            passed_s = max(event.at - self._sampled_at, 0.0)
            self.queue_s += passed_s
            self.queue_turn_s += passed_s * self.queued
        self._sampled_at, self.queued = event.at, event.queued
        self.largest_queue = largest(self.largest_queue, event.queued)
        for record in event.engines:
            self._engine(record.name).used(record, event.at - self._begun_at)

    def on_node(self, name: str) -> list[EngineState]:
        """Return the engines that serve on a node."""
        return [
            one
            for one in self.by_name.values()
            if one.node == name and one.state in {None, ReplicaState.SERVING}
        ]

    def _node(self, name: str) -> NodeState:
        return self.by_node.setdefault(name, NodeState())

    def _engine(self, name: str) -> EngineState:
        return self.by_name.setdefault(name, EngineState(name))


def plus(total: Number | None, more: Number | None) -> Number | None:
    """Add what is told; None where neither is."""
    if total is None or more is None:
        return more if total is None else total
    return total + more


def largest(one: Number | None, other: Number | None) -> Number | None:
    """Return the larger of what is told; None where neither is."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
