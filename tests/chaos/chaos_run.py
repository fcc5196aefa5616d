"""The run that faults happen to: `chaos_run.py PROFILE RESULTS RUN_ID SOCKET SWITCHES`.

It starts the run, or goes on with it where its directory is there, and ends with the exit code that
`recount eval` would end with. Plan, scheduler, pool, journal and broker's client are the real ones; the
replicas of the pool replay a script, and fail by switches, as does the journal's disk. It is this script
alone that may run an evaluation against a broker without containers.
"""

from __future__ import annotations

import errno
import signal
import sys
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from chaos_switches import Switch, Switches  # noqa: E402

from runner.breaker import BreakerPolicy  # noqa: E402
from runner.engines.base import Completion, Engine, GenerationRequest, Prompt  # noqa: E402
from runner.engines.dispatch import Dispatcher  # noqa: E402
from runner.engines.pool import EnginePool, RestartPolicy  # noqa: E402
from runner.engines.replica import Replica, ReplicaLostError, ReplicaStartError  # noqa: E402
from runner.engines.reports import ReplicaStats  # noqa: E402
from runner.engines.scripted import Script, count_bytes, render_chatml  # noqa: E402
from runner.errors import RecountError  # noqa: E402
from runner.journal import JOURNAL_NAME, JournalWriter  # noqa: E402
from runner.oversight import Oversight  # noqa: E402
from runner.patient import Patience  # noqa: E402
from runner.plan import Plan, make_plan  # noqa: E402
from runner.protocol.prompt import Message  # noqa: E402
from runner.provenance import NotToldError, Probes  # noqa: E402
from runner.resume import open_resumption  # noqa: E402
from runner.run import run_prepared  # noqa: E402
from runner.stall import StallPolicy  # noqa: E402
from sandbox import BrokerSandbox, Sandbox, SandboxError  # noqa: E402

TURN_S = 0.12
LOOK_S = 0.03
"""How often a replica looks at its switches."""
SLOTS = 3
BROKER_WAIT_S = 8.0
POOL = RestartPolicy(starts=3, wait_s=0.1, wait_cap_s=0.4, generation_timeout_s=4.0, place_timeout_s=30.0)
OVERSIGHT = Oversight(
    breaker=BreakerPolicy(failures=4, first_probe_s=0.2, probe_cap_s=1.0, give_up_s=20.0),
    stall=StallPolicy(silent_s=6.0, check_s=0.5),
    tell=lambda text: print(f"note: {text}", flush=True),
)
PATIENCE = Patience(retry_s=0.2, give_up_s=15.0, tell=OVERSIGHT.tell)


class SwitchedReplica(Replica):
    """Replays the script; dead or hanging by its switches."""

    def __init__(self, number: int, script: Script, switches: Switches) -> None:
        super().__init__(f"engine-{number}", SLOTS)
        self._script = script
        self._switches = switches
        self._dead = (Switch.ENGINE_0_DEAD, Switch.ENGINE_1_DEAD)[number]
        self._hangs = (Switch.ENGINE_0_HANGS, Switch.ENGINE_1_HANGS)[number]

    @override
    async def start(self) -> None:
        await anyio.sleep(TURN_S)
        if self._switches.is_on(self._dead):
            raise ReplicaStartError(f"{self.name} is dead")

    @override
    async def close(self) -> None:
        return

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        done_at = anyio.current_time() + TURN_S
        while anyio.current_time() < done_at or self._switches.is_on(self._hangs):
            await anyio.sleep(LOOK_S)
            if self._switches.is_on(self._dead):
                raise ReplicaLostError(f"{self.name} died")
        text = self._script.completions[request.key][request.turn] or ""
        return Completion(text, request.prompt.tokens or 0, count_bytes(text), "stop", self.name)

    @override
    async def wait_lost(self) -> str:
        while not self._switches.is_on(self._dead):  # noqa: ASYNC110 - a file tells
            await anyio.sleep(LOOK_S)
        return f"{self.name} died"

    @override
    async def stats(self) -> ReplicaStats:
        return ReplicaStats()


class SwitchedPool(EnginePool):
    """The real pool over switched replicas."""

    def __init__(self, script: Script, switches: Switches) -> None:
        replicas = [SwitchedReplica(number, script, switches) for number in range(2)]
        super().__init__(
            replicas, dispatcher=Dispatcher([SLOTS] * len(replicas), prefix_caching=False), policy=POOL
        )

    @override
    async def prepare(self) -> None:
        return

    @override
    async def release(self) -> None:
        return

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(messages, count_bytes(render_chatml(messages)))

    @override
    def identity(self) -> dict[str, object]:
        return {"kind": "scripted"}

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the model is a script",)


class FillingDisk:
    """The journal's file on a disk that is full while the switch is on: a part of the line still goes in."""

    def __init__(self, file: FileIO, switches: Switches) -> None:
        self._file = file
        self._switches = switches

    def write(self, data: Any) -> int:
        if self._switches.is_on(Switch.DISK_FULL):
            self._file.write(bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data) or 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def fill_disks(switches: Switches) -> None:
    """Put every journal that is opened from now on onto such a disk."""
    opened = JournalWriter.__init__

    def open_on_it(self: JournalWriter, *given: Any, **named: Any) -> None:
        opened(self, *given, **named)
        self._file = FillingDisk(self._file, switches)  # type: ignore[assignment] # quacks like it

    JournalWriter.__init__ = open_on_it  # type: ignore[method-assign]


def _not_told() -> Any:
    raise NotToldError("a fault injection")


async def play(*given: str) -> int:
    """Run, or go on with the run; return the exit code."""
    profile, results, run_id, socket, switches_dir = given
    switches = Switches(Path(switches_dir))
    fill_disks(switches)
    script = Script.read(Path(profile).parent / "script.jsonl")

    async def prepare(_: Sandbox) -> tuple[Plan, Engine]:
        return make_plan(profile), SwitchedPool(script, switches)

    run = partial(
        run_prepared,
        prepare,
        BrokerSandbox(Path(socket), run_id, wait_s=BROKER_WAIT_S),
        run_id=run_id,
        results_dir=Path(results),
        listener=lambda _: None,
        probes=Probes(source=_not_told, gpus=tuple, driver=lambda: None),
        patience=PATIENCE,
        oversight=OVERSIGHT,
    )
    if not (Path(results) / run_id / JOURNAL_NAME).exists():
        return (await run()).exit_code
    with open_resumption(Path(results) / run_id) as resumption:
        return (await run(resumption=resumption)).exit_code


if __name__ == "__main__":
    # A parent that was started in the background hands an ignored SIGINT down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(anyio.run(play, *sys.argv[1:]))
    except RecountError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except SandboxError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
