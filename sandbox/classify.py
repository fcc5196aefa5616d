"""What an agent's answer (or its absence) means: a result, or a failure of ours. Pure.

The line that matters: a command that kills its own sandbox for memory has a result, and a container that was
lost for any other reason is our failure and must never count as the command's.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from sandbox.accounting import Accounting, account
from sandbox.errors import SandboxInfrastructureError
from sandbox.frames import Answer, Ending, StreamFacts
from sandbox.types import EMPTY_STREAM, ActionResult, CapturedStream, Limit, Usage
from sandbox.utf8 import decode_error_message


@dataclass(frozen=True)
class ContainerState:
    """What the engine says about a container whose agent did not answer."""

    running: bool
    oom_killed: bool
    exit_code: int | None
    error: str


def classify(answer: Answer, state: ContainerState | None, wall_s: float) -> ActionResult:
    """The result of an action; `state` is asked for only when the answer is incomplete.

    Raises `SandboxInfrastructureError` when there is no result that the command could be answerable for.
    """
    if answer.failure is not None:
        raise SandboxInfrastructureError(
            f"the agent in the sandbox failed: {answer.failure}", command_started=answer.started
        )
    accounting = account(answer.cgroup_before, answer.cgroup_after)
    if answer.result is not None:
        return _complete(answer, accounting, oom_killed=state is not None and state.oom_killed)
    if state is not None and state.oom_killed:
        return ActionResult(
            stdout=EMPTY_STREAM,
            stderr=EMPTY_STREAM,
            exit_code=-signal.SIGKILL,
            timed_out=False,
            limits=(Limit.MEMORY,),
            usage=Usage(wall_s, accounting.cpu_s, accounting.throttled_s, accounting.peak_memory_bytes),
        )
    raise SandboxInfrastructureError(
        f"the sandbox container was lost during a command ({_describe(state)})", command_started=True
    )


def _complete(answer: Answer, accounting: Accounting, *, oom_killed: bool) -> ActionResult:
    result = answer.result
    if result is None:
        raise ValueError("an answer without a result is not complete")
    bitten = {
        Limit.TIME: result.ending is Ending.DEADLINE,
        Limit.MEMORY: bool(accounting.oom_kills) or oom_killed,
        Limit.PROCESSES: bool(accounting.refused_forks),
        Limit.OUTPUT: result.ending is Ending.OUTPUT,
    }
    timed_out = result.ending is not Ending.ITSELF
    # The group's own count includes children whose parents did not wait; the agent's sees those it reaped.
    cpu_s = result.cpu_us / 1e6 if accounting.cpu_s is None else accounting.cpu_s
    return ActionResult(
        stdout=_stream(answer.stdout_head, answer.stdout_tail, result.stdout),
        stderr=_stream(answer.stderr_head, answer.stderr_tail, result.stderr),
        exit_code=None if timed_out else result.exit_code,
        timed_out=timed_out,
        limits=tuple(limit for limit, bit in bitten.items() if bit),
        usage=Usage(result.wall_us / 1e6, cpu_s, accounting.throttled_s, accounting.peak_memory_bytes),
    )


def _stream(head: bytes, tail: bytes, facts: StreamFacts) -> CapturedStream:
    return CapturedStream(head, tail, facts.total_bytes, decode_error_message(facts.error))


def _describe(state: ContainerState | None) -> str:
    if state is None:
        return "the engine does not know it any more"
    if state.running:
        return "it still runs and does not answer"
    return f"exit code {state.exit_code}{', ' + state.error if state.error else ''}"
