"""A long run with real sandboxes: whether memory, descriptors and the daemon's latency stay flat.

    python benchmarks/soak.py                          # 2,000 trajectories of 10 actions
    python benchmarks/soak.py --least-minutes 60       # and again until an hour is over
    python benchmarks/soak.py --trajectories 100 --json soak.json

`recount broker` and `recount eval` run as they do for anybody, over a scripted engine. Every few seconds both
processes are looked at, and the Docker engine is asked for a sign of life, for the run's containers, and to
start and remove one. What counts as flat is said in `LIMITS`; the first tenth of the run, in which pools and
caches fill, is left out. Exit code 1 where something is not flat, or left.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import docker
from rich.console import Console
from rich.table import Table

from sandbox.engine import LABEL_RUN

ROOT = Path(__file__).parents[1]
MIB = 1 << 20
INTERVAL_S = 10.0
WARM_UP = 0.1
SLICES = 12
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 180.0
IMAGE = "recount-sandbox:latest"
PROBE_LABEL = "recount-soak-probe"

LIMITS = {
    "runner_rss_mib": 32.0,
    "broker_rss_mib": 32.0,
    "runner_fds": 16.0,
    "broker_fds": 16.0,
    "runner_threads": 8.0,
    "broker_threads": 8.0,
    "daemon_ping_ms": 50.0,
    "daemon_list_ms": 100.0,
    "daemon_start_ms": 500.0,
    "containers": 16.0,
}
"""How much more the last quarter's median may be than the first one's."""

POLICY = """memory_bytes = 201326592
pids = 64
workspace_bytes = 16777216
workspace_inodes = 1000
"""
PACK = {
    "system_prompt": "Use the shell, then answer.",
    "user_prompt_template": "Q: {question}",
    "observation_template": "<{name}> {text}",
    "format_check_name": "form",
    "answer_before_bash_warning": "compute first",
    "no_action_warning": "neither action nor answer",
    "blocked_command_observation": "not allowed",
    "unknown_action_template": "no action {name}",
    "empty_command_observation": "nothing to run",
    "stop": ["<form>"],
}
PROFILE = """name = "soak"
pack = "pack.json"
samples = {samples}

[limits]
max_turns = {turns}
context_tokens = 100000
max_tokens_per_turn = 1000
tool_timeout_s = 60.0
observation_limit_chars = 2000

[sampling]
temperature = 0.7
top_p = 0.9
top_k = 40
min_p = 0.0
presence_penalty = 0.0
repetition_penalty = 1.0

[[datasets]]
name = "soak"
path = "soak.jsonl"
base_seed = 1

[engine]
kind = "scripted"
script = "script.jsonl"
latency_s = {think_s}

[concurrency]
trajectories = {at_once}
generations = {at_once}
tools = 8
"""
PROBLEMS = 100


@dataclass(frozen=True)
class Look:
    """What was seen at one moment; None of a process that has ended."""

    at_s: float
    turns: int
    runner_rss_mib: float | None
    broker_rss_mib: float | None
    runner_fds: int | None
    broker_fds: int | None
    runner_threads: int | None
    broker_threads: int | None
    daemon_ping_ms: float
    daemon_list_ms: float
    daemon_start_ms: float
    containers: int


@dataclass
class Soak:
    """All that was measured."""

    trajectories: int
    actions: int
    seconds: float = 0.0
    runs: int = 0
    turns: int = 0
    exit_codes: list[int] = field(default_factory=list)
    broker_exit_code: int | None = None
    left: tuple[int, int] = (0, 0)
    scored: int = 0
    looks: list[Look] = field(default_factory=list)


def write_input(directory: Path, asked: argparse.Namespace) -> Path:
    """Write profile, pack, data set, script and policy; return the profile."""
    samples = max(1, asked.trajectories // PROBLEMS)
    problems = min(PROBLEMS, asked.trajectories)
    directory.mkdir(parents=True)
    profile = directory / "profile.toml"
    profile.write_text(
        PROFILE.format(samples=samples, turns=asked.actions + 2, think_s=asked.think_s, at_once=asked.at_once)
    )
    (directory / "pack.json").write_text(json.dumps(PACK))
    (directory / "policy.toml").write_text(POLICY)
    write_lines(
        directory / "soak.jsonl",
        [{"id": f"p{number}", "question": "How many?", "answer": "42"} for number in range(problems)],
    )
    write_lines(
        directory / "script.jsonl",
        [
            {
                "dataset": "soak",
                "id": f"p{number}",
                "sample": sample,
                "completions": [*map(command, range(asked.actions)), "Final answer: \\boxed{42}"],
            }
            for number in range(problems)
            for sample in range(samples)
        ],
    )
    return profile


def command(number: int) -> str:
    """What a turn runs: files that stay, a little output, now and then a lot or a process left behind."""
    script = {
        3: "head -c 200000 /dev/zero | tr '\\0' x",
        6: "sleep 600 >/dev/null 2>&1 & echo left one behind",
    }.get(number % 10, f"echo {number} >> log; wc -l < log")
    return f"Action: {json.dumps({'name': 'bash', 'arguments': {'command': script}})}"


def write_lines(path: Path, rows: Sequence[object]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Journal:
    """Counts turns and scores in a journal that grows, reading each line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.turns = 0
        self.scored = 0

    def read_on(self) -> None:
        """Count what has come since."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return  # it has not begun
        data = data[: data.rfind(b"\n") + 1]
        self._at += len(data)
        self.turns += data.count(b'"type":"turn"')
        self.scored += data.count(b'"type":"terminated"')


class Machine:
    """The engine, and the two processes."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._api = docker.APIClient(version="auto", timeout=60)

    def look(self, at_s: float, turns: int, runner: int, broker: int) -> Look:
        """Look once."""
        ping_ms, _ = timed(self._api.ping)
        list_ms, containers = timed(self._containers)
        start_ms, _ = timed(self._start_one)
        return Look(
            at_s=round(at_s, 1),
            turns=turns,
            runner_rss_mib=rss_mib(runner),
            broker_rss_mib=rss_mib(broker),
            runner_fds=fds(runner),
            broker_fds=fds(broker),
            runner_threads=threads(runner),
            broker_threads=threads(broker),
            daemon_ping_ms=ping_ms,
            daemon_list_ms=list_ms,
            daemon_start_ms=start_ms,
            containers=len(containers),
        )

    def left(self) -> tuple[int, int]:
        """How many containers and volumes of the run there are."""
        volumes = self._api.volumes(filters={"label": f"{LABEL_RUN}={self.run_id}"}).get("Volumes") or ()
        return len(self._containers()), len(volumes)

    def _containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._api.containers(
            all=True, filters={"label": f"{LABEL_RUN}={self.run_id}"}
        )
        return found

    def _start_one(self) -> None:
        """A container of our own, outside the run: what the daemon takes for one."""
        created = self._api.create_container(
            IMAGE,
            ["true"],
            network_disabled=True,
            labels={PROBE_LABEL: self.run_id},
            host_config=self._api.create_host_config(network_mode="none"),
        )
        try:
            self._api.start(created["Id"])
        finally:
            self._api.remove_container(created["Id"], force=True)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call took, in milliseconds, and what it returned."""
    began = time.perf_counter()
    returned = function()
    return round((time.perf_counter() - began) * 1000, 2), returned


def rss_mib(pid: int) -> float | None:
    """Resident memory of a process; None where it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / MIB, 2) or None


def fds(pid: int) -> int | None:
    """Open descriptors of a process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - of a path in /proc, names are enough
    except OSError:
        return None


def threads(pid: int) -> int | None:
    """Threads of a process."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - as above
    except OSError:
        return None


def soak(directory: Path, asked: argparse.Namespace, say: Callable[[str], None]) -> Soak:
    """Run, look, and run again until the time is over."""
    profile = write_input(directory / "input", asked)
    run_id = f"soak-{os.getpid()}"
    socket = directory / "broker.sock"
    found = Soak(asked.trajectories, asked.actions)
    machine = Machine(run_id)
    base = [sys.executable, "-m", "runner"]
    with (directory / "broker.log").open("wb") as log:
        broker = subprocess.Popen(
            [*base, "broker", "--socket", str(socket), "--policy", str(profile.parent / "policy.toml")],
            cwd=ROOT,
            stderr=log,
        )
    began = time.monotonic()
    try:
        wait_for(socket.exists, "the broker", broker)
        while not found.runs or time.monotonic() - began < asked.least_minutes * 60:
            found.runs += 1
            out = directory / f"results-{found.runs}"
            evaluation = [*base, "eval", str(profile), "--broker", str(socket), "--out", str(out)]
            evaluation += ["--run-id", run_id, "--ui", "lines", "--no-doctor"]
            one_run(found, machine, evaluation, out / run_id / "journal.jsonl", broker, began, say)
        found.seconds = round(time.monotonic() - began, 1)
        broker.terminate()
        found.broker_exit_code = broker.wait(END_TIMEOUT_S)
    finally:
        if broker.poll() is None:
            broker.kill()
            broker.wait()
    found.left = machine.left()
    return found


def one_run(
    found: Soak,
    machine: Machine,
    evaluation: list[str],
    journal_path: Path,
    broker: subprocess.Popen[bytes],
    began: float,
    say: Callable[[str], None],
) -> None:
    """Run all trajectories once, looking every few seconds."""
    journal = Journal(journal_path)
    before = found.turns
    with (journal_path.parents[2] / f"runner-{found.runs}.log").open("wb") as log:
        runner = subprocess.Popen(evaluation, cwd=ROOT, stdout=log, stderr=log)
    try:
        while runner.poll() is None:
            next_at = time.monotonic() + INTERVAL_S
            while runner.poll() is None and time.monotonic() < next_at:
                time.sleep(0.2)
            journal.read_on()
            found.turns = before + journal.turns
            if runner.poll() is None:
                look = machine.look(time.monotonic() - began, found.turns, runner.pid, broker.pid)
                found.looks.append(look)
                say(line_of(look))
    finally:
        if runner.poll() is None:
            runner.terminate()
            runner.wait(END_TIMEOUT_S)
    journal.read_on()
    found.turns = before + journal.turns
    found.scored += journal.scored
    found.exit_codes.append(runner.returncode)


def wait_for(condition: Callable[[], bool], what: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not start")
        time.sleep(0.1)


def line_of(look: Look) -> str:
    """Return a look as a line."""
    return " ".join(f"{name}={value}" for name, value in asdict(look).items())


@dataclass(frozen=True)
class Trend:
    """How one figure went: medians of the first and the last quarter, behind the warm-up."""

    name: str
    first: float
    last: float
    slope_an_hour: float

    @property
    def flat(self) -> bool:
        """Whether it grew by no more than its limit."""
        return self.last - self.first <= LIMITS[self.name]


def trends(looks: Sequence[Look]) -> list[Trend]:
    """Return the trend of every figure; none where there are too few looks."""
    kept = looks[int(len(looks) * WARM_UP) :]
    quarter = len(kept) // 4
    found = []
    for name in LIMITS if quarter else ():
        points = [(one.at_s, float(value)) for one in kept if (value := getattr(one, name)) is not None]
        first, last = ([value for _, value in part] for part in (points[:quarter], points[-quarter:]))
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 2 else 0.0
        found.append(Trend(name, statistics.median(first), statistics.median(last), round(slope * 3600, 3)))
    return found


def print_tables(console: Console, found: Soak, flat: Sequence[Trend]) -> None:
    """Print how the figures went, and what became of it all."""
    names = [name for name in Look.__dataclass_fields__ if name not in {"at_s", "turns"}]
    table = Table(title="Medians over time", title_justify="left")
    for name in ("minutes", "turns", *names):
        table.add_column(name, justify="right")
    size = max(1, -(-len(found.looks) // SLICES))
    for start in range(0, len(found.looks), size):
        part = found.looks[start : start + size]
        row = [f"{part[-1].at_s / 60:.1f}", str(part[-1].turns)]
        for name in names:
            values = [getattr(one, name) for one in part if getattr(one, name) is not None]
            row.append(f"{statistics.median(values):.1f}" if values else "")
        table.add_row(*row)
    console.print(table)
    verdicts = Table(title="First and last quarter behind the warm-up", title_justify="left")
    for name in ("figure", "first", "last", "an hour", "may grow by", "flat"):
        verdicts.add_column(name, justify="left" if name == "figure" else "right")
    for one in flat:
        verdicts.add_row(
            one.name,
            f"{one.first:.1f}",
            f"{one.last:.1f}",
            f"{one.slope_an_hour:+.1f}",
            f"{LIMITS[one.name]:g}",
            "yes" if one.flat else "NO",
        )
    console.print(verdicts)
    containers, volumes = found.left
    console.print(
        f"{found.runs} runs, {found.scored} trajectories scored, {found.turns} turns in {found.seconds:.0f} s"
        f" ({found.turns / max(found.seconds, 1e-9):.1f} a second); left: {containers} containers,"
        f" {volumes} volumes"
    )


def main() -> int:
    """Parse, run, print; 1 where something is not flat, not done, or left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trajectories", type=int, default=2000, help="a multiple of 100, or less")
    parser.add_argument("--actions", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--think-s", type=float, default=0.0, help="seconds a turn takes the engine")
    parser.add_argument("--least-minutes", type=float, default=0.0, help="run again until so long has passed")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="recount-soak-"))
    console = Console(width=200)
    console.print(f"logs and results in {directory}")
    found = soak(directory, asked, lambda text: print(text, flush=True))
    flat = trends(found.looks)
    print_tables(console, found, flat)
    if asked.json is not None:
        document = asdict(found) | {"trends": [asdict(one) | {"flat": one.flat} for one in flat]}
        asked.json.write_text(json.dumps(document, indent=1) + "\n")
    planned = found.runs * asked.trajectories
    ended_well = set(found.exit_codes) == {0} and found.broker_exit_code == 0 and found.scored == planned
    good = ended_well and found.left == (0, 0) and all(one.flat for one in flat)
    console.print(f"good: {good}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
