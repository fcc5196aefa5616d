"""How much may run at once so that the host cannot be overloaded. Pure.

Limits of single containers do not add up to a limit of all: eight commands of 8.5 GiB fit a host of 64 GiB
until the ninth. So what is admitted at once, each at its limit, has to fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.policy import GIB, Policy

# The system, the engine, the broker and the runner.
BASE_RESERVE_BYTES = GIB
# Trajectories mostly wait for their model: a command running keeps a few workspaces busy.
WORKSPACES_AN_ACTION = 4


@dataclass(frozen=True)
class Admission:
    """What may run at once, and what was lowered for it, a sentence each."""

    actions: int
    workspaces: int
    notes: tuple[str, ...]


def admit(policy: Policy, *, host_bytes: int, cores: int) -> Admission:
    """Fit the policy's wishes into a host of `host_bytes` and `cores`.

    Commands wish for at least eight at once (the original ran at most eight) and a quarter of the cores.
    Memory that the policy reserves (engines that serve a model) counts first. Workspaces are files in memory:
    their quota counts in full for as many as may be open. At least one command is always admitted; where
    not even that fits, a note says so.
    """
    wanted_actions = policy.actions_at_once or max(8, cores // 4)
    wanted_workspaces = policy.workspaces_at_once
    free = host_bytes - BASE_RESERVE_BYTES - policy.reserved_bytes
    notes: list[str] = []

    share = policy.memory_bytes + WORKSPACES_AN_ACTION * policy.workspace_bytes
    actions = max(1, min(wanted_actions, free // share))
    room = (free - actions * policy.memory_bytes) // policy.workspace_bytes
    workspaces = max(1, min(wanted_workspaces, room))
    if actions < wanted_actions:
        notes.append(
            f"commands at once: {actions}, not {wanted_actions}, since each may take"
            f" {policy.memory_bytes / GIB:.1f} GiB of {host_bytes / GIB:.1f} GiB"
        )
    if workspaces < wanted_workspaces:
        notes.append(
            f"workspaces at once: {workspaces}, not {wanted_workspaces}, since each may hold"
            f" {policy.workspace_bytes / GIB:.2f} GiB in memory"
        )
    if actions * policy.memory_bytes + workspaces * policy.workspace_bytes > free:
        notes.append(
            f"not even {actions} command and {workspaces} workspace at their limits fit into"
            f" {max(free, 0) / GIB:.1f} GiB of free memory: the host may run out of it"
        )
    return Admission(actions, workspaces, tuple(notes))
