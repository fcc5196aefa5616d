"""What no scheduler can beat: the longest trajectory alone on an engine, and engines always at full batch."""

from runner.engines.dispatch import CostModel
from runner.simulation.law import steps_s
from runner.simulation.workload import TurnToDo, Workload


def alone_s(turns: tuple[TurnToDo, ...], law: CostModel, *, prefix_caching: bool) -> float:
    """Return how long these turns of one trajectory take where no other turn is in the engine."""
    return sum(
        _prefill_s(turn, law, prefix_caching=prefix_caching)
        + steps_s(law, turn.output_tokens, 1, turn.prompt_tokens)
        + turn.tool_s
        for turn in turns
    )


def longest_alone_s(workload: Workload, law: CostModel, *, prefix_caching: bool) -> float:
    """Return how long the longest trajectory takes alone: a run cannot end before."""
    return max(alone_s(turns, law, prefix_caching=prefix_caching) for turns in workload.unrolled)


def throughput_s(
    workload: Workload, law: CostModel, *, engines: int, slots: int, prefix_caching: bool
) -> float:
    """Return how long the work takes if every step of every engine had a full batch and no engine ever idled.

    Of a step, the part of each sequence is the same in every batch; the rest is shared by `slots` at most.
    """
    total_s = 0.0
    for turns in workload.unrolled:
        for turn in turns:
            shared_s = turn.output_tokens * law.step_s * (1 - 1 / slots)
            total_s += (
                _prefill_s(turn, law, prefix_caching=prefix_caching)
                + steps_s(law, turn.output_tokens, 1, turn.prompt_tokens)
                - shared_s
            )
    return total_s / engines


def _prefill_s(turn: TurnToDo, law: CostModel, *, prefix_caching: bool) -> float:
    cached = law.whole_blocks(turn.seen_tokens) if prefix_caching else 0
    return (turn.prompt_tokens - cached) / law.prefill_tokens_per_s
