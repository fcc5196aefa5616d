"""Throw-away, locked-down places in which a model's commands run.

Nothing here knows about evaluations: a sandbox opens workspaces, a workspace runs commands, and a result
tells what a command printed, how it ended and what it used. `DockerSandbox` isolates every command in a
container of its own; `BrokerSandbox` has a broker do so, which alone holds the engine's socket; `HostSandbox`
isolates nothing and is for conformance runs with trusted commands.
"""

from sandbox.client import BrokerSandbox
from sandbox.docker_engine import DockerSandbox
from sandbox.errors import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.host import HostSandbox
from sandbox.policy import Policy
from sandbox.types import ActionResult, Capacity, CapturedStream, Limit, Sandbox, Usage, Workspace

__all__ = [
    "ActionResult",
    "BrokerSandbox",
    "Capacity",
    "CapturedStream",
    "DockerSandbox",
    "HostSandbox",
    "Limit",
    "Policy",
    "Sandbox",
    "SandboxError",
    "SandboxInfrastructureError",
    "SandboxPrerequisiteError",
    "Usage",
    "Workspace",
]
