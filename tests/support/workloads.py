"""Small workloads, written down."""

from runner.simulation.workload import Workload, WorkloadTrajectory, WorkloadTurn


def trajectory(
    *output_tokens: int, prompt_tokens: int = 1800, tool_s: float = 0.0, observation_tokens: int = 0
) -> WorkloadTrajectory:
    """One trajectory with a turn for each of `output_tokens`; all its tools alike."""
    last = len(output_tokens) - 1
    return WorkloadTrajectory(
        prompt_tokens=prompt_tokens,
        turns=tuple(
            WorkloadTurn(
                output_tokens=tokens,
                tool_s=None if index == last else tool_s,
                observation_tokens=observation_tokens,
            )
            for index, tokens in enumerate(output_tokens)
        ),
    )


def workload(*trajectories: WorkloadTrajectory) -> Workload:
    """A workload of these."""
    return Workload(trajectories)
