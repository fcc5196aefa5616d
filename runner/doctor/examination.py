"""All checks of a profile on this machine, at once, each within a bound: a hanging daemon costs seconds."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from anyio.to_thread import run_sync

from runner.doctor import commands, engines, files, gold, network, place
from runner.doctor.host import Host
from runner.doctor.question import Question
from runner.doctor.report import Check, Finding, Report, failed
from runner.errors import RecountError, UserError
from sandbox import Sandbox, SandboxError

PLACE = "this node"
CHECK_TIMEOUT_S = 15.0
COMMANDS_TIMEOUT_S = 40.0
"""Three checks in a row, in containers: each call is bounded by itself (`DAEMON_TIMEOUT_S`)."""
COMMANDS = (commands.SANDBOX, commands.IMAGE, commands.ACTION)
ORDER = (
    PLACE,
    *COMMANDS,
    engines.DRIVER,
    engines.GPUS,
    engines.SHARED_MEMORY,
    engines.VERSIONS,
    network.SERVER,
    network.ARTIFACTS,
    gold.GOLD,
    files.DISK,
    files.WRITABLE,
    network.CLOCK,
)


async def examine(
    question: Question,
    host: Host | None = None,
    *,
    sandbox: Sandbox | None = None,
    check_timeout_s: float = CHECK_TIMEOUT_S,
) -> Report:
    """Make all checks. `sandbox` is one that is open already, and stays open."""
    looked_at = host or Host()
    examination = _Examination()
    servers = network.Servers(question, looked_at)
    single: dict[str, Callable[[], Awaitable[Finding]]] = {
        PLACE: lambda: run_sync(place.examine_place, looked_at, question.broker, abandon_on_cancel=True),
        engines.DRIVER: lambda: engines.examine_driver(question, looked_at),
        engines.GPUS: lambda: engines.examine_gpus(question, looked_at),
        engines.SHARED_MEMORY: lambda: engines.examine_shared_memory(question, looked_at),
        engines.VERSIONS: lambda: engines.examine_versions(question, looked_at),
        network.SERVER: lambda: network.examine_server(question, servers),
        network.ARTIFACTS: lambda: network.examine_artifacts(question, servers),
        network.CLOCK: lambda: network.examine_clock(servers, looked_at),
        gold.GOLD: lambda: gold.examine_gold(question),
        files.DISK: lambda: _disk(question, looked_at),
        files.WRITABLE: lambda: files.examine_writable(question, looked_at),
    }

    async def run_commands() -> None:
        with examination.guarded(COMMANDS, COMMANDS_TIMEOUT_S):
            with anyio.fail_after(COMMANDS_TIMEOUT_S):
                await commands.examine_commands(question, looked_at, examination.tell, sandbox=sandbox)

    async def run_one(name: str, look: Callable[[], Awaitable[Finding]]) -> None:
        with examination.guarded((name,), check_timeout_s):
            with anyio.fail_after(check_timeout_s):
                examination.tell(name, await look())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_commands)
        for name, look in single.items():
            tasks.start_soon(run_one, name, look)
    return Report(question.profile.name, tuple(examination.checks[name] for name in ORDER))


async def _disk(question: Question, host: Host) -> Finding:
    try:
        here, away = await run_sync(gold.load_here, question, abandon_on_cancel=True)
    except UserError:
        here, away = [], [one.name for one in question.profile.datasets]  # the gold answers tell of it
    problems = sum(len(one.problems) for one in here) + len(away) * files.ASSUMED_PROBLEMS
    return await files.examine_disk(question, host, problems)


@dataclass
class _Examination:
    """What was told so far."""

    checks: dict[str, Check] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def tell(self, name: str, finding: Finding) -> None:
        took = time.monotonic() - self.started
        self.checks[name] = Check(name, finding.state, finding.detail, finding.remedy, round(took, 3))

    @contextmanager
    def guarded(self, names: tuple[str, ...], timeout_s: float) -> Iterator[None]:
        """Fail the checks that were not told of when something else was raised, and go on with the others."""
        try:
            yield
        except TimeoutError:
            self._rest(
                names, failed(f"no answer within {timeout_s:g} s", "look at what it waits for, and its load")
            )
        except (RecountError, SandboxError) as error:
            self._rest(names, failed(error.message, error.remedy or None))
        except OSError as error:
            self._rest(names, failed(f"cannot be looked at: {error}", "look at what it names"))

    def _rest(self, names: tuple[str, ...], finding: Finding) -> None:
        for name in names:
            if name not in self.checks:
                self.tell(name, finding)
