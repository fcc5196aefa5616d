"""What tests of a real broker ask and wait for."""

from __future__ import annotations

from pathlib import Path

from sandbox import (
    Workspace,
)

ROOT = Path(__file__).parents[2]


TIMEOUT_S = 20.0


async def out(workspace: Workspace, script: str | bytes) -> bytes:
    return (await workspace.run(script, TIMEOUT_S)).stdout.head
