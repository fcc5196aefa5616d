"""A run in a process of its own, for signals: `slow_run.py PROFILE RESULTS LATENCY_S [late|stubborn]`.

The scripted engine waits `LATENCY_S` each turn, the sandbox is the fake one; the engine never
finishes starting (`late`) or closing (`stubborn`).
"""

import signal
import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from typing_extensions import override

from runner.engines.scripted import Script, ScriptedEngine
from runner.errors import RecountError
from runner.events import Event, TurnDone
from runner.plan import make_plan
from support.fake_sandbox import FakeSandbox
from support.runs import run_plan


class LateEngine(ScriptedEngine):
    """Takes for ever to start."""

    @override
    async def start(self) -> None:
        print("starting", flush=True)
        await anyio.sleep_forever()


class StubbornEngine(ScriptedEngine):
    """Takes for ever to close."""

    @override
    async def close(self) -> None:
        print("closing", flush=True)
        await anyio.sleep_forever()


async def main(*arguments: str) -> int:
    """Run the profile and return the exit code; print a line at every turn."""
    profile, results, latency_s, *how = arguments
    plan = make_plan(profile)
    kind = {"late": LateEngine, "stubborn": StubbornEngine}.get("".join(how), ScriptedEngine)
    engine = kind(
        Script.read(Path(profile).parent / "script.jsonl"), context_tokens=4000, latency_s=float(latency_s)
    )

    def tell(event: Event) -> None:
        if isinstance(event, TurnDone):
            print("turn", flush=True)

    outcome = await run_plan(
        plan, engine, FakeSandbox(), run_id="run", results_dir=Path(results), listener=tell
    )
    return outcome.exit_code


if __name__ == "__main__":
    # A parent that was started in the background hands an ignored SIGINT down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(anyio.run(main, *sys.argv[1:]))
    except RecountError as error:
        print(error.message, file=sys.stderr)
        sys.exit(error.exit_code)
