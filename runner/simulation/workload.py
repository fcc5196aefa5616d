"""What a simulated run has to do: trajectories as token counts and tool times, read or generated."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.errors import UserError
from runner.jsonl import JsonLinesError, read_json_lines

DATASET = "workload"
ANSWER_TEXT = "Final answer: 0"

_MEDIAN_TURNS, _SIGMA_TURNS, _MOST_TURNS = 6.0, 0.92, 50
_MEDIAN_OUTPUT, _SIGMA_OUTPUT, _LEAST_OUTPUT, _MOST_OUTPUT = 700.0, 0.9, 30, 4096
_MEDIAN_TOOL_S, _SIGMA_TOOL, _MOST_TOOL_S = 0.3, 1.4, 20.0
_MEDIAN_OBSERVATION, _SIGMA_OBSERVATION, _MOST_OBSERVATION = 59.0, 1.02, 1500
_LEAST_PROMPT, _MOST_PROMPT = 600, 1000
"""The law of shared workloads (log-normal, cut off), fitted to them."""

_SHAPE = '{"prompt_tokens": 768, "turns": [{"output_tokens": 199, "tool_s": 0.3, "observation_tokens": 9}]}'

Tokens = Annotated[int, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class WorkloadTurn(_Line):
    """One turn: tokens written, then seconds of a tool and tokens observed, unless it is the last."""

    output_tokens: Annotated[int, Field(ge=1)]
    tool_s: Annotated[float, Field(ge=0)] | None = None
    observation_tokens: Tokens = 0


class WorkloadTrajectory(_Line):
    """One trajectory. `prompt_tokens` are those of its first turn."""

    prompt_tokens: Annotated[int, Field(ge=1)]
    turns: Annotated[tuple[WorkloadTurn, ...], Field(min_length=1)]


@dataclass(frozen=True)
class TurnToDo:
    """One turn as an engine meets it: the whole context as its prompt. `text` acts (`sleep S`) or answers.

    `seen_tokens` of the prompt were prompt or completion of the turn before.
    """

    prompt_tokens: int
    seen_tokens: int
    output_tokens: int
    tool_s: float
    text: str


class Workload:
    """All trajectories of a simulated run, by key."""

    def __init__(self, trajectories: Sequence[WorkloadTrajectory]) -> None:
        """A trajectory's problem id is its index."""
        self.trajectories = tuple(trajectories)
        self._turns: Mapping[str, tuple[TurnToDo, ...]] = {
            str(index): _unroll(one) for index, one in enumerate(trajectories)
        }

    def turn(self, problem_id: str, number: int) -> TurnToDo | None:
        """Return a trajectory's turn, counted from 0; None behind its last."""
        turns = self._turns[problem_id]
        return turns[number] if number < len(turns) else None

    @property
    def unrolled(self) -> tuple[tuple[TurnToDo, ...], ...]:
        """All turns of all trajectories, by their index."""
        return tuple(self._turns.values())

    @property
    def most_turns(self) -> int:
        """The longest trajectory's turns."""
        return max(len(one.turns) for one in self.trajectories)

    @staticmethod
    def read(path: Path) -> "Workload":
        """Read a file of JSON lines, one trajectory a line. Raises `UserError` naming file and line."""
        try:
            lines = list(read_json_lines(path))
        except JsonLinesError as error:
            raise UserError(str(error), remedy=f"name a file whose every line is {_SHAPE}") from error
        trajectories = []
        for number, line in lines:
            try:
                trajectories.append(WorkloadTrajectory.model_validate(line))
            except ValidationError as error:
                found = error.errors()[0]
                place = ".".join(str(part) for part in found["loc"])
                raise UserError(
                    f"{path}:{number}: {place or 'line'}: {found['msg']}", remedy=f"each line is {_SHAPE}"
                ) from error
        if not trajectories:
            raise UserError(f"{path}: no trajectories", remedy=f"each line is {_SHAPE}")
        return Workload(trajectories)

    @staticmethod
    def generate(count: int, seed: int) -> "Workload":
        """Draw trajectories shaped like those of mathematical ReAct."""
        draw = random.Random(seed)  # noqa: S311 - a benchmark's load
        return Workload([_draw(draw) for _ in range(count)])


def _unroll(trajectory: WorkloadTrajectory) -> tuple[TurnToDo, ...]:
    context, seen = trajectory.prompt_tokens, 0
    turns = []
    for index, turn in enumerate(trajectory.turns):
        last = index == len(trajectory.turns) - 1
        tool_s = 0.0 if last or turn.tool_s is None else turn.tool_s
        turns.append(
            TurnToDo(
                prompt_tokens=context,
                seen_tokens=seen,
                output_tokens=turn.output_tokens,
                tool_s=tool_s,
                text=ANSWER_TEXT if last else _sleeping(tool_s),
            )
        )
        seen = context + turn.output_tokens
        context = seen + turn.observation_tokens
    return tuple(turns)


def _sleeping(seconds: float) -> str:
    return f'Action: {{"name": "bash", "arguments": {{"command": "sleep {seconds}"}}}}'


def _draw(draw: random.Random) -> WorkloadTrajectory:
    def log_normal(median: float, sigma: float, most: float) -> float:
        return min(most, median * draw.lognormvariate(0.0, sigma))

    count = max(1, round(log_normal(_MEDIAN_TURNS, _SIGMA_TURNS, _MOST_TURNS)))
    return WorkloadTrajectory(
        prompt_tokens=draw.randint(_LEAST_PROMPT, _MOST_PROMPT),
        turns=tuple(
            WorkloadTurn(
                output_tokens=max(
                    _LEAST_OUTPUT, round(log_normal(_MEDIAN_OUTPUT, _SIGMA_OUTPUT, _MOST_OUTPUT))
                ),
                tool_s=log_normal(_MEDIAN_TOOL_S, _SIGMA_TOOL, _MOST_TOOL_S) if index < count - 1 else None,
                observation_tokens=max(
                    1, round(log_normal(_MEDIAN_OBSERVATION, _SIGMA_OBSERVATION, _MOST_OBSERVATION))
                ),
            )
            for index in range(count)
        ),
    )
