"""Whatever dies whenever: no trajectory is lost, none is done twice, and a journal replays to one state."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.builders import answer, bash, write_profile
from support.events import began, disk_was_full, ended, retried, run_started, terminated, turn, unfinished
from support.fake_engine import FakeEngine
from support.stopping import comparable, go_on, lines_of, start

from runner.engines.base import EngineUnavailableError, GenerationRequest, TrajectoryKey
from runner.errors import ExitCode
from runner.events import EndReason, Event, RunResumed, RunStarted, Terminated, Unfinished
from runner.journal import JOURNAL_NAME, JournalWriter, read_journal, read_state
from runner.plan import Plan, make_plan
from runner.resume import check_chain, open_resumption
from runner.state import reduce_events

IDS = ("p0", "p1", "p2")
STARTED = run_started(*IDS)
DURABLE = (RunStarted, RunResumed, Terminated, Unfinished)

Move = tuple[str, int]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["start", "turn", "retry", "end", "give up", "full", "stop", "kill", "power cut"]),
        st.integers(0, 1 << 16),
    ),
    max_size=40,
)


@dataclass
class Model:
    """A run as a scheduler drives it, without a model: jobs under way, and the journal they write."""

    path: Path
    journal: JournalWriter | None = None
    waiting: list[TrajectoryKey] = field(default_factory=list)
    running: dict[TrajectoryKey, int] = field(default_factory=dict)
    moment: float = 1000.0
    durable_bytes: int = 0

    def write(self, event: Event) -> None:
        if self.journal is None:
            raise AssertionError("nothing runs")
        self.moment += 1
        self.journal.append(event)
        if isinstance(event, DURABLE):
            self.durable_bytes = self.path.stat().st_size

    def begin(self) -> None:
        """Start the run, or go on with it as `resume` does."""
        if not self.path.exists() or not self.path.stat().st_size:
            self.journal = JournalWriter(self.path, clock=lambda: self.moment)
            self.write(STARTED)
            self.waiting = [TrajectoryKey("set", one, 0) for one in IDS]
            return
        with open_resumption(self.path.parent) as resumption:
            resumed, missing = resumption.resumed(STARTED), resumption.state.missing()
        self.journal = JournalWriter(self.path, clock=lambda: self.moment)
        self.write(resumed)
        self.waiting = missing

    def stop(self) -> None:
        if self.journal is not None:
            self.journal.close()
        self.journal, self.running = None, {}

    def move(self, kind: str, number: int) -> None:
        self.moment += number % 7
        if self.journal is None:
            self.begin()
            return
        keys = sorted(self.running)
        key = keys[number % len(keys)] if keys else None
        if kind == "start" and self.waiting:
            new = self.waiting.pop(number % len(self.waiting))
            self.running[new] = 1
            self.write(began(new.problem_id, row=IDS.index(new.problem_id)))
        elif kind == "full":
            self.write(disk_was_full())
        elif kind == "stop":
            self.write(ended(EndReason.INTERRUPTED))
            self.stop()
        elif kind == "kill":
            self.stop()
        elif kind == "power cut":
            self.stop()
            # What was synced stays; of the rest any beginning may have reached the disk.
            whole = self.path.read_bytes()
            keep = self.durable_bytes + number % (len(whole) - self.durable_bytes + 1)
            self.path.write_bytes(whole[:keep])
        elif key is not None:
            self.of_trajectory(kind, key)

    def of_trajectory(self, kind: str, key: TrajectoryKey) -> None:
        attempt = self.running[key]
        if kind == "turn":
            self.write(turn(problem_id=key.problem_id, attempt=attempt))
        elif kind == "retry":
            self.write(retried(key.problem_id, attempt=attempt))
            self.running[key] = attempt + 1
            self.write(began(key.problem_id, attempt=attempt + 1, row=IDS.index(key.problem_id)))
        elif kind == "end":
            del self.running[key]
            self.write(terminated(key.problem_id, attempt=attempt))
        elif kind == "give up":
            del self.running[key]
            self.write(unfinished(key.problem_id, attempt=attempt))


def scored(path: Path) -> Counter[TrajectoryKey]:
    return Counter(one.key for one in read_journal(path) if isinstance(one, Terminated))


@given(moves=MOVES)
def test_no_trajectory_is_lost_or_done_twice_under_any_order_of_ends_deaths_and_resumes(
    tmp_path_factory: pytest.TempPathFactory, moves: list[Move]
) -> None:
    model = Model(tmp_path_factory.mktemp("model") / JOURNAL_NAME)
    seen: Counter[TrajectoryKey] = Counter()
    model.begin()
    for kind, number in moves:
        model.move(kind, number)
        now = scored(model.path)
        assert not seen - now  # a score that was synced is never lost
        seen = now
    model.stop()
    model.begin()
    while model.waiting:
        model.move("start", 0)
    for key in list(model.running):
        model.of_trajectory("end", key)
    model.stop()

    assert scored(model.path) == {TrajectoryKey("set", one, 0): 1 for one in IDS}
    state = read_state(model.path)
    assert state.missing() == []
    assert state == reduce_events(read_journal(model.path))
    assert state.wall_s >= 0
    check_chain(model.path)


@given(moves=MOVES, data=st.data())
def test_any_beginning_of_a_journal_with_resumes_gives_one_state_and_can_go_on(
    tmp_path_factory: pytest.TempPathFactory, moves: list[Move], data: st.DataObject
) -> None:
    model = Model(tmp_path_factory.mktemp("model") / JOURNAL_NAME)
    model.begin()
    for kind, number in moves:
        model.move(kind, number)
    model.stop()
    whole = model.path.read_bytes()
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(whole)))
    model.path.write_bytes(whole[:cut])

    once, again = read_state(model.path), read_state(model.path)
    done = scored(model.path)

    assert once == again
    assert set(once.missing()) == {TrajectoryKey("set", one, 0) for one in IDS} - set(done)
    model.durable_bytes = 0
    model.begin()
    assert set(model.waiting) == set(once.missing())
    model.stop()


def solve(request: GenerationRequest) -> str:
    return bash("echo 42") if request.turn == 0 else answer("42" if request.key.sample else "41")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    engine = {"kind": "openai", "model": "m", "base_urls": ["http://127.0.0.1:9/v1"]}
    profile = write_profile(
        tmp_path_factory.mktemp("in"), engine, problems=dict.fromkeys(IDS, "42"), samples=2
    )
    return make_plan(str(profile))


@pytest.mark.anyio
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.floats(0.0, 1.0), max_size=4), deaths=st.sets(st.integers(0, 40), max_size=12))
async def test_a_real_run_that_is_cut_anywhere_ends_as_if_nothing_had_been(
    plan: Plan, tmp_path_factory: pytest.TempPathFactory, cuts: list[float], deaths: set[int]
) -> None:
    tmp_path = tmp_path_factory.mktemp("run")
    whole = await start(tmp_path, plan, FakeEngine(solve), run_id="whole")
    asked = 0

    def dies_now_and_then(request: GenerationRequest) -> str:
        nonlocal asked
        asked += 1
        if asked in deaths:
            raise EngineUnavailableError("dead for once")
        return solve(request)

    outcome = await start(tmp_path, plan, FakeEngine(dies_now_and_then))
    run_dir = outcome.run_dir
    for share in cuts:
        lines = lines_of(run_dir)
        data = b"".join(lines)
        first = len(lines[0])
        (run_dir / JOURNAL_NAME).write_bytes(data[: first + int(share * (len(data) - first))])
        outcome = await go_on(run_dir, plan, FakeEngine(dies_now_and_then))
    rest = len(outcome.state.missing())
    outcome = await go_on(run_dir, plan, FakeEngine(solve))

    assert (outcome.exit_code, rest >= 0) == (ExitCode.OK, True)
    assert without_attempts(comparable(outcome.results)) == without_attempts(comparable(whole.results))
    assert max(scored(run_dir / JOURNAL_NAME).values()) == 1
    check_chain(run_dir / JOURNAL_NAME)


def without_attempts(value: object) -> object:
    """Leave out how often our own side failed, which is no figure of the model's."""
    if isinstance(value, dict):
        return {
            name: without_attempts(one)
            for name, one in value.items()
            if name not in {"attempts", "infrastructure_retries"}
        }
    return [without_attempts(one) for one in value] if isinstance(value, list) else value
