"""Runs that stop at a chosen moment, as a kill would leave them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from runner.engines.base import Engine
from runner.events import Event, RunEnded, SourceRecord
from runner.journal import JOURNAL_NAME, JournalWriter
from runner.patient import Patience
from runner.plan import Plan
from runner.provenance import NotToldError, Probes
from runner.resume import Resumption, open_resumption
from runner.run import RunOutcome
from support.fake_sandbox import FakeSandbox, result
from support.runs import run_plan

_LIMIT_S = 60


def _nothing_told() -> SourceRecord:
    raise NotToldError("a test")


_QUICK = Probes(source=_nothing_told, gpus=tuple, driver=lambda: None)
"""Where a test takes place is not asked of git and drivers."""


class KilledError(Exception):
    """Stands for a process that is gone: the journal ends where it was raised."""


def killed_after(events: int) -> Callable[[Event], None]:
    """Return a listener with which a run is gone after so many events."""
    left = events

    def count(_: Event) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise KilledError

    return count


@contextmanager
def no_end_written() -> Iterator[None]:
    """Keep the journal from being given its end: a process that is gone writes none."""
    write = JournalWriter.write

    def write_unless_killed(self: JournalWriter, stamped: Event) -> Event:
        if isinstance(stamped, RunEnded):
            raise KilledError
        return write(self, stamped)

    JournalWriter.write = write_unless_killed  # type: ignore[method-assign]
    try:
        yield
    finally:
        JournalWriter.write = write  # type: ignore[method-assign]


async def start(
    tmp_path: Path,
    plan: Plan,
    engine: Engine,
    *,
    sandbox: FakeSandbox | None = None,
    listener: Callable[[Event], None] = lambda _: None,
    run_id: str = "run",
    patience: Patience | None = None,
    resumption: Resumption | None = None,
) -> RunOutcome:
    """Run a plan below `tmp_path`."""
    with anyio.fail_after(_LIMIT_S):
        return await run_plan(
            plan,
            engine,
            sandbox or FakeSandbox(lambda _: result("42\n")),
            run_id=run_id,
            results_dir=tmp_path / "results",
            listener=listener,
            patience=patience,
            probes=_QUICK,
            resumption=resumption,
        )


async def start_killed(tmp_path: Path, plan: Plan, engine: Engine, events: int, **how: Any) -> Path:
    """Run a plan that is gone after so many events; return its directory."""
    with no_end_written():
        try:
            await start(tmp_path, plan, engine, listener=killed_after(events), **how)
        except KilledError:
            pass
        else:
            raise AssertionError("the run ended before it was killed")
    return tmp_path / "results" / "run"


async def go_on(
    run_dir: Path,
    plan: Plan,
    engine: Engine,
    *,
    sandbox: FakeSandbox | None = None,
    listener: Callable[[Event], None] = lambda _: None,
) -> RunOutcome:
    """Go on with a run."""
    with open_resumption(run_dir) as resumption:
        return await start(
            run_dir.parent.parent, plan, engine, sandbox=sandbox, listener=listener, resumption=resumption
        )


def lines_of(run_dir: Path) -> list[bytes]:
    """Return the journal's lines."""
    return (run_dir / JOURNAL_NAME).read_bytes().splitlines(keepends=True)


def comparable(results: dict[str, Any]) -> dict[str, Any]:
    """Return results without what differs between any two runs: times, the journal's hash, the run's id."""
    kept = {
        name: value
        for name, value in results.items()
        if name not in {"run_id", "started_at", "ended_at", "journal", "timings", "cost", "engines"}
    }
    return dict(_without_times(kept))  # type: ignore[call-overload, no-any-return]


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if not name.endswith("_s")}
    return [_without_times(one) for one in value] if isinstance(value, list) else value
