"""The driver's side of an engine, over a Ray that is a stand-in: starts, losses, and whose a failure is."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from runner.cluster import silence
from runner.engines.base import (
    GenerationRequest,
    GenerationTiming,
    Prompt,
    PromptTooLongError,
    RequestRefusedError,
    Sampling,
    TrajectoryKey,
)
from runner.engines.replica import ReplicaLostError, ReplicaStartError
from runner.engines.reports import ReplicaStats
from runner.engines.vllm import replica as replica_module
from runner.engines.vllm.replica import ReplicaSettings, StartLocks, VllmReplica
from runner.engines.vllm.wire import (
    Device,
    EngineConfig,
    EngineFacts,
    Failure,
    FailureKind,
    Generated,
    Placement,
    unpack_tokens,
)
from runner.errors import UserError

pytestmark = pytest.mark.anyio

FACTS = EngineFacts("3.10.12", "2.10.0", "0.19.1", "4.57.6", "2.56.1", "cpu", 100)
REQUEST = GenerationRequest(
    key=TrajectoryKey("set", "p", 0),
    attempt=1,
    turn=0,
    prompt=Prompt(messages=(), tokens=2, token_ids=(8, 9)),
    sampling=Sampling(1.0, 1.0, 40, 0.0, 0.0, 1.0),
    seed=3,
    max_tokens=4,
    stop=("x",),
)
GENERATED = Generated("t", 2, 3, "stop", None, GenerationTiming(0.0, 1.0, 2.0))


class RayError(Exception):
    """As Ray's."""


class ActorDiedError(RayError):
    """As Ray's."""


Answer = Callable[..., Any]


@dataclass
class FakeActor:
    """Answers each call as its entry in `answers` says; once killed, every call fails as Ray has it."""

    answers: dict[str, Answer]
    config: EngineConfig
    options: dict[str, Any]
    killed: bool = False
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    refs: list["asyncio.Future[Any]"] = field(default_factory=list)

    def __getattr__(self, name: str) -> SimpleNamespace:
        def remote(*arguments: Any) -> "asyncio.Future[Any]":
            self.calls.append((name, arguments))
            self.refs.append(asyncio.ensure_future(self._answer(name, *arguments)))
            return self.refs[-1]

        return SimpleNamespace(remote=remote)

    async def _answer(self, name: str, *arguments: Any) -> Any:
        if self.killed:
            raise ActorDiedError(f"The actor died.\n  worker exit type: SYSTEM_ERROR, {name}")
        answer = self.answers[name](*arguments)
        return await answer if asyncio.iscoroutine(answer) else answer


class FakeRay:
    """Makes stand-ins for actors and remembers what was done to them."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {
            "place": lambda: Placement("node", 1, ()),
            "start": lambda: FACTS,
            "generate": lambda _: GENERATED,
            "stop": lambda: None,
            "stats": lambda: ReplicaStats(running=1),
            "wait_dead": lambda: "the engine core is gone (exit code -9)",
        }
        self.actors: list[FakeActor] = []
        self.cancelled: list[Any] = []

    def remote(self, _: type) -> SimpleNamespace:
        def options(**options: Any) -> SimpleNamespace:
            def make(config: EngineConfig) -> FakeActor:
                self.actors.append(FakeActor(self.answers, config, options))
                return self.actors[-1]

            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def kill(self, actor: FakeActor, *, no_restart: bool) -> None:
        assert no_restart
        actor.killed = True
        for ref in actor.refs:
            ref.cancel()

    def cancel(self, ref: Any) -> None:
        self.cancelled.append(ref)


class FakeRuntime:
    def __init__(self) -> None:
        self.ray = FakeRay()

    async def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*arguments, **named)


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


def replica(
    runtime: FakeRuntime,
    tmp_path: Path,
    *,
    name: str = "engine0",
    fraction: float = 0.0,
    start_timeout_s: float = 5.0,
    locks: StartLocks | None = None,
) -> VllmReplica:
    log = tmp_path / f"{name}.log"
    log.write_text("first line\nValueError: something specific\n", encoding="utf-8")
    config = EngineConfig(
        model="m",
        device=Device.CPU,
        dtype="float32",
        context_tokens=10,
        max_num_seqs=3,
        seed=0,
        log_path=str(log),
    )
    return VllmReplica(
        name,
        config,
        ReplicaSettings(fraction, start_timeout_s),
        runtime=runtime,  # type: ignore[arg-type]
        locks=locks or StartLocks(),
    )


@pytest.fixture
async def started(runtime: FakeRuntime, tmp_path: Path) -> VllmReplica:
    one = replica(runtime, tmp_path)
    await one.start()
    return one


async def test_an_actor_holds_its_share_of_a_gpu_and_takes_control_calls_beside_turns(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    await replica(runtime, tmp_path, fraction=0.5).start()

    options = runtime.ray.actors[0].options
    assert (options["num_gpus"], options["num_cpus"], options["max_restarts"]) == (0.5, 0, 0)
    assert options["max_concurrency"] > 3


async def test_a_turn_is_asked_for_and_told(runtime: FakeRuntime, started: VllmReplica) -> None:
    completion = await started.generate(REQUEST)
    await started.generate(REQUEST)

    calls = [arguments[0] for name, arguments in runtime.ray.actors[0].calls if name == "generate"]
    assert len({call.request_id for call in calls}) == 2
    assert unpack_tokens(calls[0].tokens) == [8, 9]
    assert (calls[0].seed, calls[0].max_tokens, calls[0].stop) == (3, 4, ("x",))
    assert (completion.text, completion.engine, completion.completion_tokens) == ("t", "engine0", 3)
    assert completion.timing == GenerationTiming(0.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FailureKind.PROMPT_TOO_LONG, PromptTooLongError),
        (FailureKind.REFUSED, RequestRefusedError),
        (FailureKind.ENGINE, ReplicaLostError),
    ],
)
async def test_a_failure_is_whose_it_is(
    runtime: FakeRuntime, started: VllmReplica, kind: FailureKind, error: type[Exception]
) -> None:
    runtime.ray.answers["generate"] = lambda _: Failure(kind, "ValueError: why")

    with pytest.raises(error, match="ValueError: why"):
        await started.generate(REQUEST)


async def test_whatever_ray_says_is_a_loss_and_told_in_one_line(
    runtime: FakeRuntime, started: VllmReplica
) -> None:
    runtime.ray.actors[0].killed = True

    for ask in (lambda: started.generate(REQUEST), started.stats):
        with pytest.raises(ReplicaLostError, match=r"^engine0: ActorDiedError: The actor died\. worker exit"):
            await ask()
    assert await started.wait_lost() == (
        "engine0: ActorDiedError: The actor died. worker exit type: SYSTEM_ERROR, wait_dead"
    )


async def test_a_dead_engine_core_is_told(started: VllmReplica) -> None:
    assert await started.wait_lost() == "engine0: the engine core is gone (exit code -9)"


async def test_an_actor_that_says_nothing_any_more_is_lost(
    runtime: FakeRuntime, started: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "INTERVAL_S", 0.01)
    monkeypatch.setattr(silence, "ANSWER_TIMEOUT_S", 0.05)
    runtime.ray.answers["wait_dead"] = anyio.sleep_forever
    with anyio.move_on_after(0.3) as answering:
        await started.wait_lost()
    assert answering.cancelled_caught  # an actor that answers is not lost
    runtime.ray.answers["place"] = anyio.sleep_forever

    with anyio.fail_after(5):
        assert await started.wait_lost() == "engine0: its actor said nothing for 60 s"


async def test_an_actor_that_misses_one_answer_is_not_lost(
    runtime: FakeRuntime, started: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "INTERVAL_S", 0.01)
    monkeypatch.setattr(silence, "ANSWER_TIMEOUT_S", 0.05)
    runtime.ray.answers["wait_dead"] = anyio.sleep_forever
    asked: list[int] = []

    async def place() -> Placement:
        asked.append(len(asked))
        if len(asked) % 2:
            await anyio.sleep_forever()
        return Placement("node", 1, ())

    runtime.ray.answers["place"] = place
    with anyio.move_on_after(0.4) as answering:
        await started.wait_lost()
    assert answering.cancelled_caught
    assert len(asked) > 2


async def test_whoever_stops_waiting_cancels_the_call(runtime: FakeRuntime, started: VllmReplica) -> None:
    runtime.ray.answers["generate"] = lambda _: anyio.sleep(60)

    with anyio.move_on_after(0.05):
        await started.generate(REQUEST)

    assert runtime.ray.cancelled == [runtime.ray.actors[0].refs[-1]]


async def test_a_start_that_takes_too_long_is_told_with_the_log_and_its_actor_killed(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    runtime.ray.answers["start"] = lambda: anyio.sleep(60)

    with pytest.raises(
        ReplicaStartError,
        match=r"(?s)engine0 did not come up within 0\.05 s\nlast lines of .*engine0\.log:\nfirst.*specific",
    ):
        await replica(runtime, tmp_path, start_timeout_s=0.05).start()
    assert runtime.ray.actors[0].killed


async def test_a_start_that_fails_is_told_with_the_log_and_its_actor_killed(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    runtime.ray.answers["start"] = lambda: Failure(FailureKind.ENGINE, "RuntimeError: see above")

    with pytest.raises(ReplicaStartError, match=r"(?s)did not come up: RuntimeError: see above\n.*specific"):
        await replica(runtime, tmp_path).start()
    assert runtime.ray.actors[0].killed


async def test_an_actor_that_dies_while_starting_is_told_as_a_start_that_failed(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    async def die() -> None:
        raise ActorDiedError("killed")

    runtime.ray.answers["start"] = die

    with pytest.raises(ReplicaStartError, match=r"died while starting: engine0: ActorDiedError: killed"):
        await replica(runtime, tmp_path).start()


async def test_short_memory_is_the_user_s_at_the_first_start_and_ours_later(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    def no_memory() -> Failure:
        return Failure(FailureKind.ENGINE, "ValueError: No available memory for the cache blocks")

    one = replica(runtime, tmp_path)
    runtime.ray.answers["start"] = no_memory
    with pytest.raises(UserError, match="gpu_memory_utilization"):
        await one.start()
    runtime.ray.answers["start"] = lambda: FACTS
    await one.start()
    runtime.ray.answers["start"] = no_memory
    with pytest.raises(ReplicaStartError):
        await one.start()


async def test_after_its_core_died_the_same_actor_makes_another_engine(
    runtime: FakeRuntime, started: VllmReplica
) -> None:
    await started.start()

    assert len(runtime.ray.actors) == 1
    assert [name for name, _ in runtime.ray.actors[0].calls].count("start") == 2


@pytest.mark.parametrize("how", ["dead", "deaf"])
async def test_an_actor_that_is_gone_or_deaf_is_replaced(
    runtime: FakeRuntime, started: VllmReplica, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(replica_module, "ANSWER_TIMEOUT_S", 0.05)
    first = runtime.ray.actors[0]
    first.killed = how == "dead"
    if how == "deaf":
        first.answers = first.answers | {"place": lambda: anyio.sleep(60)}

    await started.start()

    assert first.killed
    assert len(runtime.ray.actors) == 2
    assert (await started.generate(REQUEST)).text == "t"


async def test_engines_on_one_gpu_start_one_after_the_other_and_others_at_once(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    places = iter([Placement("n", 1, ("0",)), Placement("n", 2, ("0",)), Placement("n", 3, ("1",))])
    runtime.ray.answers["place"] = lambda: next(places)
    starting: list[int] = []
    most: dict[str, int] = {}

    async def start() -> EngineFacts:
        starting.append(1)
        most["at once"] = max(most.get("at once", 0), len(starting))
        await anyio.sleep(0.05)
        starting.pop()
        return FACTS

    runtime.ray.answers["start"] = start
    locks = StartLocks()
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(replica(runtime, tmp_path, name=f"e{number}", fraction=0.5, locks=locks).start)

    assert most["at once"] == 2


async def test_ray_that_finds_no_place_is_told(
    runtime: FakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "PLACE_TIMEOUT_S", 0.05)
    runtime.ray.answers["place"] = lambda: anyio.sleep(60)

    with pytest.raises(ReplicaStartError, match=r"found no place .*\n.*needs 0\.5 of a GPU"):
        await replica(runtime, tmp_path, fraction=0.5).start()
    assert runtime.ray.actors[0].killed


async def test_closing_kills_an_actor_that_does_not_stop_and_may_be_done_again(
    runtime: FakeRuntime, started: VllmReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "STOP_TIMEOUT_S", 0.05)
    runtime.ray.answers["stop"] = lambda: anyio.sleep(60)

    with anyio.fail_after(2):
        await started.close()
        await started.close()

    assert runtime.ray.actors[0].killed
    with pytest.raises(ReplicaLostError, match="not started"):
        await started.generate(REQUEST)


async def test_closing_before_a_start_does_nothing(runtime: FakeRuntime, tmp_path: Path) -> None:
    await replica(runtime, tmp_path).close()

    assert runtime.ray.actors == []


async def test_a_stopped_start_leaves_no_actor(runtime: FakeRuntime, tmp_path: Path) -> None:
    runtime.ray.answers["start"] = lambda: anyio.sleep(60)
    with anyio.move_on_after(0.05):
        await replica(runtime, tmp_path).start()

    assert runtime.ray.actors[0].killed
