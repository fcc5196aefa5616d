"""Other ways to place a turn, to compare ours with: simple ones, and one that knows what nobody can know."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from runner.engines.base import TrajectoryKey
from runner.engines.dispatch import CostModel, Dispatcher, Turn
from runner.simulation.bounds import alone_s
from runner.simulation.workload import Workload

SECONDS_A_WEIGHT = 50.0
"""The clairvoyant weighs a trajectory e times another's that has this much less before it."""


class LeastLoaded(Dispatcher):
    """Each turn goes to the engine with the fewest."""

    @override
    def choose(self, turn: Turn) -> int | None:
        free = [index for index, load in enumerate(self._loads) if load.free]
        return min(free, key=lambda index: len(self._loads[index].turns), default=None)


class Sticky(Dispatcher):
    """A trajectory stays in the engine that had the fewest trajectories when it began."""

    def __init__(self, slots: Sequence[int], *, prefix_caching: bool, model: CostModel) -> None:
        """Begin with no trajectory anywhere."""
        super().__init__(slots, prefix_caching=prefix_caching, model=model)
        self._homes: dict[TrajectoryKey, int] = {}
        self._at_home = [0] * len(self._loads)

    @override
    def choose(self, turn: Turn) -> int | None:
        home = self._homes.get(turn.key)
        if home is not None and self._loads[home].free:
            return home
        free = [index for index, load in enumerate(self._loads) if load.free]
        return min(free, key=lambda index: self._at_home[index], default=None)

    @override
    def place(self, turn: Turn, engine: int) -> None:
        super().place(turn, engine)
        self.forget_home(turn.key)
        self._homes[turn.key] = engine
        self._at_home[engine] += 1

    @override
    def forget(self, key: TrajectoryKey) -> None:
        super().forget(key)
        self.forget_home(key)

    def forget_home(self, key: TrajectoryKey) -> None:
        """It lives nowhere any more."""
        home = self._homes.pop(key, None)
        if home is not None:
            self._at_home[home] -= 1


@dataclass(frozen=True)
class _Weighed(Turn):
    given: float = 1.0

    @property
    @override
    def weight(self) -> float:
        return self.given


class Weighed(Dispatcher):
    """Our rule with other weights of trajectories."""

    def __init__(
        self, slots: Sequence[int], *, prefix_caching: bool, model: CostModel, weigh: Callable[[Turn], float]
    ) -> None:
        """`weigh` says how likely a turn's trajectory is to end last."""
        super().__init__(slots, prefix_caching=prefix_caching, model=model)
        self._weigh = weigh

    def _weighed(self, turn: Turn) -> Turn:
        return _Weighed(turn.key, turn.number, turn.context_tokens, self._weigh(turn))

    @override
    def choose(self, turn: Turn) -> int | None:
        return super().choose(self._weighed(turn))

    @override
    def place(self, turn: Turn, engine: int) -> None:
        super().place(self._weighed(turn), engine)

    @override
    def remove(self, turn: Turn, engine: int, *, completion_tokens: int | None) -> None:
        super().remove(self._weighed(turn), engine, completion_tokens=completion_tokens)


def clairvoyant(workload: Workload, law: CostModel, *, prefix_caching: bool) -> Callable[[Turn], float]:
    """Return weights by what is left of each trajectory, which no scheduler can know."""
    left_s = {
        str(index): [
            alone_s(turns[number:], law, prefix_caching=prefix_caching) for number in range(len(turns))
        ]
        for index, turns in enumerate(workload.unrolled)
    }

    def weigh(turn: Turn) -> float:
        return math.exp(left_s[turn.key.problem_id][turn.number] / SECONDS_A_WEIGHT)

    return weigh


def by_turns(per_turn: float) -> Callable[[Turn], float]:
    """Return weights that each turn of progress multiplies by `per_turn`."""
    return lambda turn: per_turn**turn.number
