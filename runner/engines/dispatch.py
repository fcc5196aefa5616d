"""Where a turn goes: the engine in which it costs the run least.

What a turn costs is the time until it is done itself, and the time that it takes from the turns already in
that engine's batch: prefill stops the whole batch, and every further sequence makes each step longer. Both
are weighed by how likely the trajectory is to be among the last of the run. Nobody knows how long a
trajectory will be, but each may use all its turns; so, of two, the one with fewer turns behind it is more
likely to end last.

The rule covers both regimes without a switch. Without a prefix cache the prefill is the same everywhere and
nothing ties a turn to an engine. With one, moving costs the whole context again, so a trajectory stays
until its engine is so much busier that moving is cheaper. `benchmarks/scheduling.py` measures what it is
worth against the alternatives.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

from runner.engines.base import TrajectoryKey

LAGGARD_WEIGHT_PER_TURN = math.exp(-0.2)
"""What one turn of progress takes off a trajectory's weight.

Any value from 0.7 to 1 is within 2 % on generated workloads (means over eight, with and without prefix
cache, 130 and 520 trajectories); none of those tried was better than this one by half a percent in any of
the four regimes."""

MOST_WEIGHED = 64
"""Engines that a turn is weighed in. Of more, as a cluster has, those with the smallest batches are taken
and those that have seen the trajectory: weighing takes 4 µs an engine, of each turn."""

_PRIOR_TURNS = 20


@dataclass(frozen=True)
class CostModel:
    """What a turn costs an engine. Only ratios matter here; the values are those of a 4B model on one GPU.

    A decoding step of b sequences with c tokens of context in all takes
    `step_s + per_sequence_s * b + per_context_token_s * c`; prefill runs at `prefill_tokens_per_s`, and what
    a prefix cache holds is found in whole blocks of `cache_block_tokens`. `turn_tokens` is the length of a
    completion as long as none has been seen.
    """

    step_s: float = 12e-3
    per_sequence_s: float = 0.12e-3
    per_context_token_s: float = 2e-9
    prefill_tokens_per_s: float = 18_000.0
    cache_block_tokens: int = 544
    turn_tokens: float = 900.0

    def step_of_s(self, batch: int, context_tokens: int) -> float:
        """Return how long one decoding step takes."""
        return self.step_s + self.per_sequence_s * batch + self.per_context_token_s * context_tokens

    def whole_blocks(self, seen_tokens: int) -> int:
        """Return how many of so many tokens a prefix cache finds again."""
        return seen_tokens - seen_tokens % self.cache_block_tokens


@dataclass(frozen=True)
class Turn:
    """A turn to be placed: whose, the how-many-th (from 0), and the tokens of its prompt."""

    key: TrajectoryKey
    number: int
    context_tokens: int

    @property
    def weight(self) -> float:
        """How likely this trajectory is to end last, in proportion to others."""
        return LAGGARD_WEIGHT_PER_TURN**self.number


@dataclass
class _Load:
    """What one engine has in its batch, and what its prefix cache has seen of each trajectory."""

    slots: int
    open: bool = False
    turns: set[Turn] = field(default_factory=set)
    context_tokens: int = 0
    weight: float = 0.0
    seen_tokens: dict[TrajectoryKey, int] = field(default_factory=dict)
    placed: int = 0
    """How many turns it has had."""
    filed: int | None = None
    """The batch that the engine is filed under; None where it has no room."""

    @property
    def free(self) -> bool:
        return self.open and len(self.turns) < self.slots


class Dispatcher:
    """Keeps count of what is where, and chooses. No clock, no waiting: the pool does that."""

    def __init__(self, slots: Iterable[int], *, prefix_caching: bool, model: CostModel | None = None) -> None:
        """`slots` is how many turns each engine takes at once; engines are named by their index."""
        self._loads: list[_Load] = []
        self._by_batch: dict[int, dict[int, None]] = {}
        """Engines with room, by how many turns they have; those of one batch in the order they came to it."""
        self._seen_in: dict[TrajectoryKey, set[int]] = {}
        self._prefix_caching = prefix_caching
        self._model = model or CostModel()
        self._completions = _PRIOR_TURNS
        self._completion_tokens = _PRIOR_TURNS * self._model.turn_tokens
        for count in slots:
            self.add(count)

    def add(self, slots: int) -> None:
        """Count one engine more; its index is the next. It is shut until it serves."""
        self._loads.append(_Load(slots))

    def open(self, engine: int) -> None:
        """An engine serves; its cache is empty."""
        load = self._loads[engine]
        load.open = True
        for key in load.seen_tokens:
            self._forget_in(key, engine)
        load.seen_tokens.clear()
        self._file(engine)

    def shut(self, engine: int) -> None:
        """An engine takes no further turns."""
        self._loads[engine].open = False
        self._file(engine)

    def choose(self, turn: Turn) -> int | None:
        """Return the engine in which `turn` costs least, or None if all are full; changes nothing.

        Of several, as when all are idle, the one that has had the fewest turns: so that nodes of a cluster
        are used alike.
        """
        return min(
            self._weighed(turn),
            key=lambda index: (self._cost_s(turn, self._loads[index]), self._loads[index].placed),
            default=None,
        )

    def _weighed(self, turn: Turn) -> Iterable[int]:
        """Return the engines that come into question, all that are free where those are few."""
        if len(self._loads) <= MOST_WEIGHED:
            return [index for index, load in enumerate(self._loads) if load.free]
        smallest = chain.from_iterable(self._by_batch[batch] for batch in sorted(self._by_batch))
        known = (index for index in self._seen_in.get(turn.key, ()) if self._loads[index].free)
        return chain(islice(smallest, MOST_WEIGHED), known)

    def _file(self, engine: int) -> None:
        """Put an engine where its batch is now."""
        load = self._loads[engine]
        if load.filed is not None:
            batch = self._by_batch[load.filed]
            del batch[engine]
            if not batch:
                del self._by_batch[load.filed]
        load.filed = len(load.turns) if load.free else None
        if load.filed is not None:
            self._by_batch.setdefault(load.filed, {})[engine] = None

    def place(self, turn: Turn, engine: int) -> None:
        """Count a turn as being in an engine's batch."""
        load = self._loads[engine]
        load.turns.add(turn)
        load.placed += 1
        load.context_tokens += turn.context_tokens
        load.weight += turn.weight
        self._file(engine)

    def remove(self, turn: Turn, engine: int, *, completion_tokens: int | None) -> None:
        """Count a turn as gone: done with so many tokens, or (None) lost or cancelled."""
        load = self._loads[engine]
        load.turns.remove(turn)
        self._file(engine)
        load.context_tokens -= turn.context_tokens
        # Summed anew where it is nothing: differences of floats leave crumbs.
        load.weight = load.weight - turn.weight if load.turns else 0.0
        if completion_tokens is None:
            return
        self._completions += 1
        self._completion_tokens += completion_tokens
        if self._prefix_caching:
            load.seen_tokens[turn.key] = turn.context_tokens + completion_tokens
            self._seen_in.setdefault(turn.key, set()).add(engine)

    def forget(self, key: TrajectoryKey) -> None:
        """A trajectory has ended: no cache of its prefix is worth anything any more."""
        for engine in self._seen_in.pop(key, ()):
            self._loads[engine].seen_tokens.pop(key, None)

    def _forget_in(self, key: TrajectoryKey, engine: int) -> None:
        engines = self._seen_in.get(key)
        if engines is not None:
            engines.discard(engine)
            if not engines:
                del self._seen_in[key]

    def cached_tokens(self, turn: Turn, engine: int) -> int:
        """Return how much of a turn's prompt an engine is expected to have cached, in whole blocks."""
        return self._cached_tokens(turn, self._loads[engine])

    def _cached_tokens(self, turn: Turn, load: _Load) -> int:
        seen = min(load.seen_tokens.get(turn.key, 0), turn.context_tokens)
        return self._model.whole_blocks(seen)

    def _cost_s(self, turn: Turn, load: _Load) -> float:
        model = self._model
        turn_tokens = self._completion_tokens / self._completions
        prefill_s = (turn.context_tokens - self._cached_tokens(turn, load)) / model.prefill_tokens_per_s
        step_s = model.step_of_s(len(load.turns) + 1, load.context_tokens + turn.context_tokens)
        longer_step_s = model.per_sequence_s + model.per_context_token_s * turn.context_tokens
        # The others are somewhere in their turns: half of one is left of each on average.
        taken_s = prefill_s + turn_tokens / 2 * longer_step_s
        return turn.weight * (prefill_s + turn_tokens * step_s) + load.weight * taken_s
