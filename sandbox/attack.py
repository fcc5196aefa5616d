"""Hostile commands, each in a workspace of its own, with a look at everything that must not suffer.

While an attack runs, a neighbour works; after it, the same workspace and the neighbour must both work, the
attack's processes must be gone, its workspace must close, and the host must be as it was.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.attack_rules import Attack, Observed, Probe, Verdict, judge
from sandbox.docker_engine import DockerSandbox
from sandbox.errors import SandboxError, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.health import Change, Health, leftovers, look, own_peak_bytes, processes_of, worse
from sandbox.policy import Policy
from sandbox.types import ActionResult, Workspace

DEFAULT_TIMEOUT_S = 20.0
PROBE_TIMEOUT_S = 30.0
# How often the neighbour works while an attack runs.
MEANWHILE_INTERVAL_S = 1.0
# Noise of a busy host passes within this; a leak does not.
SETTLE_ATTEMPTS = 5
SETTLE_INTERVAL_S = 1.0
LEAST_SECRET_CHARACTERS = 12
CANARY_VARIABLE = "RECOUNT_CANARY"
_SECRET_NAME = re.compile("key|token|secret|password|credential", re.IGNORECASE)

# In the attacked workspace: the token comes back, and no file changes any more.
_SAME = (
    "rest() {{ find /sandbox -type f -printf '%p %s %T@\\n' 2>/dev/null | cksum; }}; a=$(rest); sleep 0.3;"
    ' test "$a" = "$(rest)" && printf %s {token} || printf "its files still change"'
)
# In the neighbour: its file is whole, and it can write more.
_NEIGHBOUR = (
    "head -c 1048576 /dev/zero > more && test $(stat -c %s more) = 1048576 && rm more"
    ' && printf %s "$(cat token)"'
)


@dataclass(frozen=True)
class Outcome:
    """One attack and what came of it."""

    attack: Attack
    seen: Observed
    verdict: Verdict
    reasons: tuple[str, ...]


class _Line(BaseModel):
    """How an attack stands in a file."""

    model_config = ConfigDict(strict=True)

    id: str
    command: str
    expect: str = ""


@dataclass
class _Canaries:
    """Secrets that no output may hold: the neighbour's, this process's, and the host's."""

    known: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, value: str) -> str:
        self.known[name] = value.encode()
        return value

    def leaked(self, result: ActionResult | None) -> tuple[str, ...]:
        if result is None:
            return ()
        said = b"\0".join((result.stdout.head, result.stdout.tail, result.stderr.head, result.stderr.tail))
        return tuple(name for name, value in self.known.items() if value in said)


def read_attacks(path: Path) -> tuple[Attack, ...]:
    """Attacks as JSON lines of {id, command, expect}."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxPrerequisiteError(f"{path}: {error}", remedy="name a file of JSON lines") from error
    found = []
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            raise SandboxPrerequisiteError(
                f"{path}:{number}: no attack ({error.errors()[0]['msg']})",
                remedy="a line is {id, command, expect}",
            ) from error
        found.append(Attack(line.id, line.command, line.expect))
    if not found:
        raise SandboxPrerequisiteError(f"{path} holds no attack", remedy="a line is {id, command, expect}")
    return tuple(found)


@asynccontextmanager
async def attack_bench(
    policy: Policy, *, timeout_s: float = DEFAULT_TIMEOUT_S, base_url: str | None = None
) -> AsyncIterator[AttackBench]:
    """A sandbox, a neighbour in it, and canaries, for attacks one after another.

    Raises `SandboxInfrastructureError` at its end if anything of the run is left on the engine.
    """
    run_id = f"attack-{secrets.token_hex(6)}"
    async with DockerSandbox(policy, run_id, base_url=base_url) as sandbox:
        with _canaries() as canaries:
            bench = AttackBench(sandbox, timeout_s, canaries)
            await bench.prepare()
            yield bench
        for workspace in list(bench.workspaces):
            await workspace.close()
        await sandbox.janitor.at_most(0)
        left = await _leftovers(sandbox, None)
    if left:
        raise SandboxInfrastructureError(
            f"the run left {', '.join(left)}", remedy=f"recount sandbox clean --run {run_id}"
        )


class AttackBench:
    """Runs attacks; made by `attack_bench`."""

    def __init__(self, sandbox: DockerSandbox, timeout_s: float, canaries: _Canaries) -> None:
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._canaries = canaries
        self._data_root = ""
        self._token = canaries.add("another workspace's file", secrets.token_hex(16))
        self._neighbour: Workspace | None = None
        self.workspaces: list[Workspace] = []

    async def prepare(self) -> None:
        """Open the neighbour and give it the file that attacks must neither read nor change."""
        api = self._sandbox.engine.api
        info = await self._sandbox.engine.call("asking the engine about itself", api.info)
        self._data_root = str(info.get("DockerRootDir") or "")
        self._neighbour = await self._open("neighbour")
        await self._neighbour.run(f"printf %s {self._token} > token", PROBE_TIMEOUT_S)

    async def run(self, number: int, attack: Attack) -> Outcome:
        """One attack, from a fresh workspace to its removal and the look at what is left."""
        workspace_id = f"attack-{number}"
        before = await self._look()
        client_before = own_peak_bytes()
        workspace = await self._open(workspace_id)
        uid = await self._uid(workspace)
        result, refused, failure, meanwhile, elapsed_s = await self._under_attack(workspace, attack)
        processes = None if uid is None else await anyio.to_thread.run_sync(processes_of, uid)
        own_token = secrets.token_hex(8)
        same = await self._probe(workspace, _SAME.format(token=own_token), own_token)
        neighbour = await self._probe_neighbour()
        started = anyio.current_time()
        await workspace.close()
        self.workspaces.remove(workspace)
        close_s = anyio.current_time() - started
        seen = Observed(
            result=result,
            refused=refused,
            failure=failure,
            elapsed_s=elapsed_s,
            same_workspace=same,
            neighbour=neighbour,
            neighbour_meanwhile=tuple(meanwhile),
            processes=None if processes is None else tuple(processes),
            leaked=self._canaries.leaked(result),
            host_worse=await self._settled(before),
            close_s=close_s,
            leftovers=await _leftovers(self._sandbox, workspace_id),
            client_growth_bytes=own_peak_bytes() - client_before,
        )
        verdict, reasons = judge(attack, seen, self._sandbox.policy, self._timeout_s)
        return Outcome(attack, seen, verdict, reasons)

    async def _under_attack(
        self, workspace: Workspace, attack: Attack
    ) -> tuple[ActionResult | None, str | None, str | None, list[Probe], float]:
        """The attack itself, the neighbour working beside it."""
        result: ActionResult | None = None
        refused: str | None = None
        failure: str | None = None
        meanwhile: list[Probe] = []
        started = anyio.current_time()
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._work_meanwhile, meanwhile)
            try:
                result = await workspace.run(attack.command, self._timeout_s)
            except ValueError as error:
                refused = str(error)
            except SandboxError as error:
                failure = str(error)
            elapsed_s = anyio.current_time() - started
            beside.cancel_scope.cancel()
        return result, refused, failure, meanwhile, elapsed_s

    async def _work_meanwhile(self, probes: list[Probe]) -> None:
        """Only whole probes count; the one that is under way when the attack ends is given up."""
        while True:
            await anyio.sleep(MEANWHILE_INTERVAL_S)
            with anyio.CancelScope(shield=True):
                probes.append(await self._probe_neighbour())

    async def _probe_neighbour(self) -> Probe:
        if self._neighbour is None:
            raise SandboxError("the neighbour was never opened")
        return await self._probe(self._neighbour, _NEIGHBOUR, self._token)

    async def _probe(self, workspace: Workspace, script: str, token: str) -> Probe:
        started = anyio.current_time()
        try:
            result = await workspace.run(script, PROBE_TIMEOUT_S)
        except SandboxError as error:
            return Probe(str(error), anyio.current_time() - started)
        wall_s = anyio.current_time() - started
        said = (result.stdout.head + result.stdout.tail).decode("utf-8", "replace")
        if said == token and result.exit_code == 0:
            return Probe(None, wall_s)
        complaint = result.stderr.head.decode("utf-8", "replace").strip()
        return Probe(f"exit code {result.exit_code}, {(complaint or said)[:200]!r}", wall_s)

    async def _open(self, workspace_id: str) -> Workspace:
        workspace = await self._sandbox.open(workspace_id)
        self.workspaces.append(workspace)
        return workspace

    async def _uid(self, workspace: Workspace) -> int | None:
        """The user as this machine sees it; None where the daemon maps users to others."""
        result = await workspace.run("id -u", PROBE_TIMEOUT_S)
        said = result.stdout.head.strip()
        own = int(said) if said.isdigit() else None
        return own if own in range(*_policy_range(self._sandbox.policy)) else None

    async def _look(self) -> Health:
        api, data_root = self._sandbox.engine.api, self._data_root
        return await anyio.to_thread.run_sync(lambda: look(api, data_root))

    async def _settled(self, before: Health) -> tuple[Change, ...]:
        """What stays worse when the noise of the host had time to pass."""
        found: tuple[Change, ...] = ()
        for attempt in range(SETTLE_ATTEMPTS):
            if attempt:
                await anyio.sleep(SETTLE_INTERVAL_S)
            found = worse(before, await self._look())
            if not found:
                break
        return found


def _policy_range(policy: Policy) -> tuple[int, int]:
    return policy.uid_base, policy.uid_base + policy.uid_count


async def _leftovers(sandbox: DockerSandbox, workspace_id: str | None) -> tuple[str, ...]:
    """What is still there once the removals that are under way had their time."""
    api, run_id = sandbox.engine.api, sandbox.run_id
    found: tuple[str, ...] = ()
    for attempt in range(SETTLE_ATTEMPTS):
        if attempt:
            await anyio.sleep(SETTLE_INTERVAL_S)
        found = await anyio.to_thread.run_sync(lambda: leftovers(api, run_id, workspace_id))
        if not found:
            break
    return found


@contextmanager
def _canaries() -> Iterator[_Canaries]:
    """A secret in this process's environment and one in a file of the host's; real ones count too."""
    canaries = _Canaries()
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= LEAST_SECRET_CHARACTERS:
            canaries.add(f"the value of {name}", value)
    os.environ[CANARY_VARIABLE] = canaries.add("this process's environment", secrets.token_hex(16))
    with tempfile.NamedTemporaryFile(prefix="recount-canary-") as file:
        file.write(canaries.add("a file of the host", secrets.token_hex(16)).encode())
        file.flush()
        try:
            yield canaries
        finally:
            os.environ.pop(CANARY_VARIABLE, None)
