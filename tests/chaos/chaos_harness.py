"""Lets one schedule happen to a run, goes on with the run until it is done, and looks at what came of it.

What has to hold: the run ends by itself, with the results of an undisturbed run (times and the traces of the
faults themselves aside); every trajectory has exactly one score in the journal, whose chain is whole; and
nothing is left on the engine.
"""

from __future__ import annotations

import heapq
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos_place import Place
from chaos_proxy import Proxy
from chaos_schedule import DAEMON, Deed, Step
from chaos_switches import Switch, Switches
from support.builders import answer, bash, write_lines, write_profile

from runner.events import Terminated
from runner.journal import JOURNAL_NAME, read_journal, read_state
from runner.results.files import RESULTS_NAME
from runner.resume import check_chain

HERE = Path(__file__).parent
LIMIT_S = 240.0
"""For one schedule, restarts and waits included; an undisturbed one takes about seven seconds."""
PAUSE_S = 0.02
PROBLEMS, SAMPLES = 8, 2
ENDS = {0, 3, 4, 130, -signal.SIGKILL, -signal.SIGTERM}
"""Exit codes of a run that was faulted: done, failed, incomplete, interrupted, killed; the last is a run that
was asked to end before it had begun to listen."""
_BAD_INPUT = 2
_FAULTS = {"attempts", "infrastructure_retries"}
_MEASURED = {"peak_memory_bytes"}
"""As times are: no two runs have the same."""
_OF_ONE_RUN = {"run_id", "started_at", "ended_at", "journal", "timings", "cost", "engines"}


# What is run.


def completions(number: int, sample: int) -> list[str]:
    """What the model says: several turns whose observations depend on the workspace's own files."""
    name = f"p{number}-{sample}"
    turns = [
        bash(f"echo {name} >> log; wc -l < log"),
        bash(f"echo $(({number} * 7)) | tee -a log; cat log; wc -l < log"),
        "Let me think about the form.",
        bash(f"ls no-such-{name}; wc -l < log; exit {number % 4}"),
        bash("echo end >> log; sleep 0.1; wc -l < log"),
    ]
    turns = turns[: 3 + number % 3]
    if number == PROBLEMS - 1:
        return turns + [bash("wc -l < log")] * 8  # its turns run out
    return [*turns, answer("42" if (number + sample) % 3 else "41")]


def write_input(directory: Path) -> Path:
    """Write profile, data set and script; return the profile."""
    profile = write_profile(
        directory,
        {"kind": "scripted", "script": "script.jsonl"},
        problems={f"p{number}": "42" for number in range(PROBLEMS)},
        samples=SAMPLES,
        extra="[concurrency]\ntrajectories = 6\ngenerations = 6\ntools = 4\n",
    )
    text = profile.read_text().replace("max_turns = 4", "max_turns = 7")
    # A broker that is stalled under a command must not make its time-out bite.
    text = text.replace("tool_timeout_s = 2.0", "tool_timeout_s = 60.0").replace(
        "context_tokens = 4000", "context_tokens = 40000"
    )
    profile.write_text(text)
    write_lines(
        directory / "script.jsonl",
        (
            {
                "dataset": "set",
                "id": f"p{number}",
                "sample": sample,
                "completions": completions(number, sample),
            }
            for number in range(PROBLEMS)
            for sample in range(SAMPLES)
        ),
    )
    return profile


# What happens to it.


@dataclass
class Outcome:
    """What came of one schedule."""

    seed: int
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    exits: list[int] = field(default_factory=list)
    pauses: int = 0
    stalls: int = 0
    wrong: list[str] = field(default_factory=list)
    results: str = ""

    @property
    def good(self) -> bool:
        """Whether the run came to its right end."""
        return not self.wrong


class Harness:
    """One run, from its start to its end, whatever happens in between."""

    def __init__(
        self, directory: Path, profile: Path, place_of: Callable[[Path, Path], Place], seed: int
    ) -> None:
        self._directory = directory
        self._profile = profile
        self._switches_dir = directory / "switches"
        for one in (directory, self._switches_dir):
            one.mkdir(parents=True, exist_ok=True)
        self._switches = Switches(self._switches_dir)
        self._place = place_of(directory, self._switches_dir)
        self._proxy = Proxy(directory / "proxy.sock", self._place.broker.socket)
        self._run_id = f"chaos-{seed}"
        self._runner: subprocess.Popen[bytes] | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._lasting: dict[int, Callable[[], None]] = {}
        self._order = itertools.count()
        self._outcome = Outcome(seed)

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        return self._directory / "results" / self._run_id

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Let it all happen."""
        began = time.monotonic()
        self._place.broker.start()
        self._proxy.start()
        try:
            self._start_runner()
            self._drive(steps, began + LIMIT_S)
            self._undo_what_lasts()
            if self._outcome.good:
                code = self._place.broker.stop()
                if code != 0:
                    self._outcome.wrong.append(f"the broker ended with {code}")
        finally:
            self._switches.all_off()
            if self._runner is not None and self._runner.poll() is None:
                self._runner.kill()
                self._runner.wait()
            self._place.broker.kill()
            self._proxy.stop()
        self._outcome.seconds = time.monotonic() - began
        self._judge()
        return self._outcome

    def _drive(self, steps: Sequence[Step], deadline: float) -> None:
        waiting = list(steps)
        while True:
            now = time.monotonic()
            if now > deadline:
                self._outcome.wrong.append(f"not done within {LIMIT_S:g} s")
                return
            if waiting and (self.run_dir / JOURNAL_NAME).exists():
                # The clock of a schedule starts with the journal.
                for step in waiting:
                    self._at(now + step.at_s, self._deed(step))
                waiting = []
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            if self._ended():
                return
            time.sleep(PAUSE_S)

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment, next(self._order), action))

    def _undo_at(self, moment: float, undo: Callable[[], None]) -> None:
        number = next(self._order)
        self._lasting[number] = undo

        def do() -> None:
            self._lasting.pop(number)()

        self._at(moment, do)

    def _undo_what_lasts(self) -> None:
        """Undo what a run that was done sooner left as it was: a broker that is dead has to sweep yet."""
        for undo in self._lasting.values():
            undo()
        self._lasting.clear()

    def _start_runner(self) -> None:
        command = [sys.executable, str(HERE / "chaos_run.py"), str(self._profile)]
        command += [str(self._directory / "results"), self._run_id, str(self._proxy.path)]
        with (self._directory / "runner.log").open("ab") as log:
            self._runner = subprocess.Popen(
                [*command, str(self._switches_dir)], stdout=log, stderr=log, start_new_session=True
            )

    def _ended(self) -> bool:
        """Start a run that ended early again; whether it is done."""
        code = None if self._runner is None else self._runner.poll()
        if code is None:
            return False
        self._outcome.exits.append(code)
        if code == 0:
            return True
        if code == _BAD_INPUT and not self._has_begun():
            # Killed before the first line was whole: there is no run to go on with.
            (self.run_dir / JOURNAL_NAME).unlink(missing_ok=True)
            self.run_dir.rmdir()
        elif code not in ENDS:
            self._outcome.wrong.append(f"the run ended with {code}: {self._last_lines()}")
            return True
        time.sleep(0.2)
        self._start_runner()
        return False

    def _has_begun(self) -> bool:
        journal = self.run_dir / JOURNAL_NAME
        return not journal.exists() or b"\n" in journal.read_bytes()

    def _last_lines(self) -> str:
        return (self._directory / "runner.log").read_text(errors="replace")[-1500:]

    # Deeds.

    def _deed(self, step: Step) -> Callable[[], None]:
        def do() -> None:
            self._outcome.done[step.deed.value] += 1
            undo = self._do(step)
            if undo is not None:
                self._undo_at(time.monotonic() + step.lasts_s, undo)

        return do

    def _do(self, step: Step) -> Callable[[], None] | None:
        """Do a deed; return how it is undone, where it lasts."""
        switches = self._switches_of(step)
        if switches:
            return self._switch(*switches)
        if step.deed is Deed.RUNNER_STALLED:
            return self._stall(self._runner)
        if step.deed is Deed.BROKER_STALLED:
            return self._stall(self._place.broker.process)
        if step.deed is Deed.BROKER_KILLED:
            self._place.broker.kill()
            return self._start_broker
        if step.deed is Deed.CONTAINERS_DIE:
            self._place.break_containers(self._switches, self._run_id, on=True)
            return lambda: self._place.break_containers(self._switches, self._run_id, on=False)
        if step.deed in DAEMON:
            self._place.daemon(step.deed, self._switches, on=True)
            return lambda: self._place.daemon(step.deed, self._switches, on=False)
        self._do_once(step)
        return None

    def _do_once(self, step: Step) -> None:
        """Do what is not undone."""
        if step.deed is Deed.RUNNER_STOPPED:
            self._signal_runner(signal.SIGTERM)
        elif step.deed is Deed.SOCKET_DROPPED:
            self._proxy.drop()
        else:
            self._kill_runner(step)

    @staticmethod
    def _switches_of(step: Step) -> tuple[Switch, ...]:
        dead = (Switch.ENGINE_0_DEAD, Switch.ENGINE_1_DEAD)
        hangs = (Switch.ENGINE_0_HANGS, Switch.ENGINE_1_HANGS)
        return {
            Deed.ENGINE_DIES: (dead[step.number % 2],),
            Deed.ENGINES_DIE: dead,
            Deed.ENGINE_HANGS: (hangs[step.number % 2],),
            Deed.DISK_FULL: (Switch.DISK_FULL,),
        }.get(step.deed, ())

    def _switch(self, *switches: Switch) -> Callable[[], None]:
        for one in switches:
            self._switches.turn(one, on=True)

        def off() -> None:
            for one in switches:
                self._switches.turn(one, on=False)

        return off

    def _signal_runner(self, number: signal.Signals) -> None:
        if self._runner is not None and self._runner.poll() is None:
            self._runner.send_signal(number)

    def _stall(self, process: subprocess.Popen[bytes] | None) -> Callable[[], None] | None:
        if process is None or process.poll() is not None:
            return None
        process.send_signal(signal.SIGSTOP)

        def go_on() -> None:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)

        return go_on

    def _kill_runner(self, step: Step) -> None:
        self._signal_runner(signal.SIGKILL)
        if self._runner is not None:
            self._runner.wait()
        journal = self.run_dir / JOURNAL_NAME
        if step.deed is Deed.RUNNER_KILLED or not journal.exists():
            return
        lines = journal.read_bytes().splitlines(keepends=True)
        if step.deed is Deed.TAIL_GARBLED:
            garbage = bytes(step.number * factor % 256 for factor in range(1, 80)).replace(b"\n", b"")
            journal.write_bytes(b"".join(lines) + garbage)
        elif len(lines) > 1:
            last = lines[-1]
            journal.write_bytes(b"".join(lines[:-1]) + last[: step.number % len(last)])

    def _start_broker(self) -> None:
        """A broker that is killed and started at once may find its own socket's lock still held."""
        if self._place.broker.process is not None and self._place.broker.process.poll() is None:
            return
        deadline = time.monotonic() + 30
        while True:
            try:
                self._place.broker.start()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    # What came of it.

    def _judge(self) -> None:
        outcome = self._outcome
        if not outcome.good:
            return
        journal = self.run_dir / JOURNAL_NAME
        check_chain(journal)
        state = read_state(journal)
        outcome.pauses, outcome.stalls = state.pauses, state.stalls
        scores = Counter(one.key for one in read_journal(journal) if isinstance(one, Terminated))
        if scores != dict.fromkeys(state.planned(), 1):
            outcome.wrong.append(f"scores are not one a trajectory: {scores}")
        killed = any(outcome.done[one.value] for one in (Deed.BROKER_KILLED, *DAEMON))
        outcome.wrong += self._place.left(self._run_id, killed=killed)
        outcome.results = comparable(self.run_dir)


def comparable(run_dir: Path) -> str:
    """Return a run's results and transcripts as text, without what is measured and the traces of faults."""
    results = json.loads((run_dir / RESULTS_NAME).read_text(encoding="utf-8"))
    kept = {name: value for name, value in results.items() if name not in _OF_ONE_RUN}
    return json.dumps(_without(kept), sort_keys=True, indent=1)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without(one)
            for name, one in value.items()
            if not name.endswith("_s") and name not in _FAULTS | _MEASURED
        }
    return [_without(one) for one in value] if isinstance(value, list) else value
