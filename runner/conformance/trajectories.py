"""Replay golden trajectories through the real loop: scripted completions, commands run for real.

Every case goes the way a run goes: trajectory, events, state, record. What is compared is the record
that results files carry, and the conversation.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError

from runner.conformance.report import Report
from runner.datasets import Problem
from runner.engines.base import Sampling, ScriptExhaustedError, TrajectoryKey
from runner.engines.scripted import Script, ScriptedEngine
from runner.errors import UserError
from runner.events import EVENT_ADAPTER, Event, ProblemRecord, UntrustedText
from runner.groups import first_error_only
from runner.jsonl import JsonLinesError, read_json_lines
from runner.protocol.prompt import ProtocolPack
from runner.results.records import messages_after_prompt, trajectory_record
from runner.state import RunState
from runner.trajectory import Job, Limits, Rules, TrajectoryRunner
from sandbox import Sandbox

DATASET = "golden"
AT_ONCE = 8
_SAMPLING = Sampling(1.0, 1.0, 40, 0.0, 0.0, 1.0)


class _Task(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    question: str
    answer: str
    source: str = ""


class _Options(BaseModel):
    """Limits under the original's names; `tool_timeout` in seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    max_turns: int
    max_model_len: int
    max_tokens: int
    tool_timeout: float
    observation_limit: int


class _Case(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    task: _Task
    row_index: int
    sample_index: int
    base_seed: int
    options: _Options
    completions: list[UntrustedText | None]
    expected: dict[str, Any]


async def check_trajectories(file: Path, pack: ProtocolPack, sandbox: Sandbox) -> Report:
    """Replay every case of `file` and compare; raise `UserError` for a file without one that can be read.

    A case that goes on where the original had ended is a failed one, like any other that differs.
    """
    cases = _read_cases(file)
    report = Report()
    found: dict[int, Mapping[str, Any] | ScriptExhaustedError] = {}
    slots = anyio.CapacityLimiter(AT_ONCE)

    async def replay(index: int, case: _Case) -> None:
        async with slots:
            try:
                found[index] = await _replay(case, pack, sandbox)
            except ScriptExhaustedError as error:
                found[index] = error

    with first_error_only():
        async with sandbox, anyio.create_task_group() as tasks:
            for index, case in enumerate(cases):
                tasks.start_soon(replay, index, case)
    for index, case in enumerate(cases):
        record = found[index]
        if isinstance(record, ScriptExhaustedError):
            report.fail(case.name, f"went on behind its last completion: {record.message}")
        else:
            report.compare(case.name, case.expected, {name: record.get(name) for name in case.expected})
    return report


def _read_cases(file: Path) -> list[_Case]:
    try:
        lines = list(read_json_lines(file))
    except JsonLinesError as error:
        raise UserError(str(error), remedy="name a file of golden trajectories") from error
    cases = []
    for number, line in lines:
        try:
            cases.append(_Case.model_validate(line))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise UserError(
                f"{file}:{number}: {place}: {first['msg']}", remedy="each line is one trajectory"
            ) from error
    if not cases:
        raise UserError(f"{file}: holds no trajectory", remedy="name a file of golden trajectories")
    return cases


async def _replay(case: _Case, pack: ProtocolPack, sandbox: Sandbox) -> Mapping[str, Any]:
    problem = Problem(
        id=case.task.id,
        row_index=case.row_index,
        question=case.task.question,
        answer=case.task.answer,
        source=case.task.source,
    )
    options = case.options
    limits = Limits(
        max_turns=options.max_turns,
        context_tokens=options.max_model_len,
        max_tokens_per_turn=options.max_tokens,
        tool_timeout_s=options.tool_timeout,
        observation_limit_chars=options.observation_limit,
    )
    key = TrajectoryKey(DATASET, problem.id, case.sample_index)
    engine = ScriptedEngine(
        Script({key: tuple(case.completions)}), context_tokens=limits.context_tokens, source=case.name
    )
    state = RunState()

    def emit(event: Event) -> None:
        # Through the journal's form, so that what is compared is what a journal can carry.
        state.apply(EVENT_ADAPTER.validate_python(event.model_dump(mode="python")))

    runner = TrajectoryRunner(
        Rules(pack, limits, _SAMPLING),
        engine,
        sandbox,
        generation=anyio.Semaphore(1),
        tools=anyio.Semaphore(1),
        emit=emit,
    )
    await runner.run(Job(DATASET, problem, case.sample_index, case.base_seed), attempt=1)
    trajectory = state.trajectories[key]
    asked = ProblemRecord(
        id=problem.id, row_index=problem.row_index, question=problem.question, answer=problem.answer
    )
    record = trajectory_record(trajectory, asked)
    return record | {"messages_after_prompt": messages_after_prompt(trajectory, pack)}
