"""Where trajectories spent their time, and how long the run's tail was. Pure."""

from typing import Any

from runner.results.figures import ratio, seconds
from runner.state import RunState, TrajectoryState

TAIL_SHARE = 10
"""The tail begins when fewer than one in so many trajectories are left: a fixed one, to compare runs by."""


def trajectory_times(state: RunState) -> dict[str, Any]:
    """Return the shares of their elapsed time that scored trajectories spent with what, and the tail.

    Their last attempts alone, as in their records. The rest is opening workspaces, and turns that an engine
    refused.
    """
    scored = [one for one in state.trajectories.values() if one.terminated is not None]
    turns = [turn for one in scored for turn in one.turns]
    elapsed_s = sum(one.terminated.elapsed_s for one in scored if one.terminated is not None)
    queue_s = sum(turn.queue_s or 0.0 for turn in turns)
    generation_wait_s = sum(turn.generate_wait_s for turn in turns) + queue_s
    generation_s = sum(turn.generate_s for turn in turns) - queue_s
    tool_wait_s = sum(turn.tool_wait_s for turn in turns)
    tool_s = sum(turn.tool_s for turn in turns)
    rest_s = elapsed_s - generation_wait_s - generation_s - tool_wait_s - tool_s
    return {
        "scored": len(scored),
        "elapsed_s": seconds(elapsed_s),
        "generation_share": ratio(generation_s, elapsed_s),
        "generation_wait_share": ratio(generation_wait_s, elapsed_s),
        "tool_share": ratio(tool_s, elapsed_s),
        "tool_wait_share": ratio(tool_wait_s, elapsed_s),
        "rest_share": ratio(rest_s, elapsed_s),
        "tail_s": seconds(_tail_s(state)),
    }


def _tail_s(state: RunState) -> float | None:
    """Return the time from the end that left fewer than a tenth of all trajectories to the last so far."""
    planned = len(state.planned())
    ended_at = (at for one in state.trajectories.values() if (at := _ended_at(one)) is not None)
    # A pause between two parts of the run is no tail.
    ends = sorted(state.work_s(at) for at in ended_at)
    left_before = -(-planned // TAIL_SHARE)
    first = planned - left_before
    return ends[-1] - ends[first] if planned and first < len(ends) else None


def _ended_at(trajectory: TrajectoryState) -> float | None:
    end = trajectory.terminated or trajectory.unfinished
    return None if end is None else end.at
