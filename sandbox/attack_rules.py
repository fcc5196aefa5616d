"""Whether an attack was contained, from what can be observed. Pure.

Two kinds of rules. What must hold whatever the command is (it ends in time, the workspace and its neighbour
go on, nothing is left) makes a breach where it does not. What the attack's own expectation says in words is
held against what was seen where the words name something observable; a mismatch asks for a person's look,
since words can be read wrongly and success of a forbidden thing is not always visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from sandbox.health import Change
from sandbox.policy import MIB, Policy
from sandbox.types import ActionResult, Limit

# From the deadline to the command's end as the agent measures it.
LATE_S = 1.0
AT_ONCE_S = 3.0
# Containers start more slowly while an attack takes all processors, and it may run beside one.
NEIGHBOUR_BOUND_S = 10.0
CLOSE_BOUND_S = 30.0
CLIENT_GROWTH_BYTES = 64 * MIB

# What the C library and shells say when something is refused.
_REFUSAL = re.compile(
    "not permitted|permission denied|read-only|no such file|cannot access|no space left|file too large"
    "|file size|too many open files|unreachable|not implemented|address family|refused|denied"
    "|temporarily unavailable"
    r"|cannot allocate|oserror|permissionerror|rc=[1-9]\d*|(^|\s)-1(\s|$)",
    re.IGNORECASE,
)


class Verdict(str, Enum):
    """What became of an attack. Values stand in reports."""

    CONTAINED = "contained"
    LOOK = "look"
    BREACH = "BREACH"


@dataclass(frozen=True)
class Attack:
    """One line of a file of attacks: a command, and what must happen in words."""

    attack_id: str
    command: str
    expect: str


@dataclass(frozen=True)
class Probe:
    """A command of ours that must work: what went wrong, if anything, and how long it took."""

    fault: str | None
    wall_s: float


@dataclass(frozen=True)
class Observed:
    """Everything that was seen of one attack.

    `result` is None where the command was refused before it ran (`refused`) or the sandbox failed
    (`failure`). `processes` are the user's processes still alive on the host when the action was over; None
    if this machine does not show them.
    """

    result: ActionResult | None
    refused: str | None
    failure: str | None
    elapsed_s: float
    same_workspace: Probe
    neighbour: Probe
    neighbour_meanwhile: tuple[Probe, ...]
    processes: tuple[str, ...] | None
    leaked: tuple[str, ...]
    host_worse: tuple[Change, ...]
    close_s: float
    leftovers: tuple[str, ...]
    client_growth_bytes: int


def judge(
    attack: Attack, seen: Observed, policy: Policy, timeout_s: float
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, and its reasons; a breach's come first."""
    breaches = tuple(_breaches(seen, policy, timeout_s))
    doubts = tuple(_doubts(attack, seen))
    if breaches:
        return Verdict.BREACH, breaches + doubts
    return (Verdict.LOOK, doubts) if doubts else (Verdict.CONTAINED, ())


def _breaches(seen: Observed, policy: Policy, timeout_s: float) -> Iterator[str]:
    if seen.failure is not None:
        yield f"the sandbox failed: {seen.failure}"
    if seen.elapsed_s > timeout_s + policy.grace_s:
        yield f"it took {seen.elapsed_s:.1f} s, more than {policy.grace_s:g} s past its time-out"
    if seen.result is not None:
        yield from _result_breaches(seen.result, policy, timeout_s)
    if seen.same_workspace.fault is not None:
        yield f"the next action: {seen.same_workspace.fault}"
    yield from _neighbour_breaches(seen)
    yield from (f"in its output: {secret}" for secret in seen.leaked)
    yield from _what_stays(seen)


def _neighbour_breaches(seen: Observed) -> Iterator[str]:
    probes = (*(("during it", probe) for probe in seen.neighbour_meanwhile), ("after it", seen.neighbour))
    for when, probe in probes:
        if probe.fault is not None or probe.wall_s > NEIGHBOUR_BOUND_S:
            yield f"another workspace {when}: {probe.fault or f'{probe.wall_s:.1f} s'}"


def _what_stays(seen: Observed) -> Iterator[str]:
    if seen.processes:
        yield f"alive after the action: {', '.join(seen.processes[:5])}"
    yield from (change.text for change in seen.host_worse if change.certain)
    if seen.leftovers:
        yield f"left behind: {', '.join(seen.leftovers[:5])}"
    if seen.close_s > CLOSE_BOUND_S:
        yield f"cleaning up took {seen.close_s:.1f} s"
    if seen.client_growth_bytes > CLIENT_GROWTH_BYTES:
        yield f"this process grew by {seen.client_growth_bytes // MIB} MiB"


def _result_breaches(result: ActionResult, policy: Policy, timeout_s: float) -> Iterator[str]:
    if result.usage.wall_s > timeout_s + LATE_S:
        yield f"it ran {result.usage.wall_s - timeout_s:.1f} s past its time-out"
    if result.timed_out and not {Limit.TIME, Limit.OUTPUT} & set(result.limits):
        yield "it was ended and no limit says why"
    for name, stream in (("stdout", result.stdout), ("stderr", result.stderr)):
        if len(stream.head) > policy.capture_bytes or len(stream.tail) > policy.capture_bytes:
            yield f"more of {name} was kept than the policy allows"
    peak = result.usage.peak_memory_bytes
    if peak is not None and peak > policy.memory_bytes:
        yield f"it held {peak // MIB} MiB, more than its limit"


def _doubts(attack: Attack, seen: Observed) -> Iterator[str]:
    yield from (f"{change.text} (or others' work)" for change in seen.host_worse if not change.certain)
    result = seen.result
    if result is None:
        return
    expected = attack.expect.lower()
    for words, holds, complaint in _EXPECTATIONS:
        if re.search(words, expected) and not holds(result):
            yield complaint


def _refused(result: ActionResult) -> bool:
    """An exit code, a limit or a message says that something was refused."""
    said = (result.stdout.head + result.stdout.tail + result.stderr.head + result.stderr.tail).decode(
        "utf-8", "replace"
    )
    return result.exit_code != 0 or bool(result.limits) or _REFUSAL.search(said) is not None


# Words of an expectation, what is to be seen then, and what to say where it is not.
_EXPECTATIONS: tuple[tuple[str, Callable[[ActionResult], bool], str], ...] = (
    (
        r"not permitted|read-only|refused|denied|unreachable|fails|absent|no space left|quota|too many open",
        _refused,
        "expected to be refused, yet no exit code, limit or message says so",
    ),
    (
        r"(?<!not reported as )out of memory|memory ran out|memory limit",
        lambda result: Limit.MEMORY in result.limits,
        "the memory limit was expected and is not named",
    ),
    (
        r"not reported as out of memory",
        lambda result: Limit.MEMORY not in result.limits,
        "it is reported as out of memory",
    ),
    (
        r"process limit",
        lambda result: Limit.PROCESSES in result.limits,
        "the process limit was expected and is not named",
    ),
    (
        r"output_limit|flood",
        lambda result: bool({Limit.OUTPUT, Limit.TIME} & set(result.limits)),
        "a limit on its output or time was expected and is not named",
    ),
    (
        r"(at|past) the deadline|^time-?out\b",
        lambda result: Limit.TIME in result.limits,
        "it was expected to run into its time-out",
    ),
    (
        r"at once",
        lambda result: not result.timed_out and result.usage.wall_s < AT_ONCE_S,
        "it was expected to return at once",
    ),
)
