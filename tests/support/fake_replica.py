"""Replicas that do what a test says, a pool over them, and tests in virtual time."""

import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import anyio
from typing_extensions import override

from runner.engines.base import Completion, GenerationRequest, Prompt, TrajectoryKey
from runner.engines.dispatch import Dispatcher
from runner.engines.pool import EnginePool, RestartPolicy
from runner.engines.replica import Replica, ReplicaLostError
from runner.engines.reports import ReplicaStats
from runner.protocol.prompt import Message
from runner.simulation.clock import run_in_virtual_time
from support.builders import SAMPLING

OnTurn = Callable[[GenerationRequest], Awaitable[Completion]]
OnStart = Callable[[int], None]


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test under a simulated clock, which begins at 0."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_in_virtual_time(functools.partial(test, *args, **kwargs))

    return run


def key(name: str = "p0") -> TrajectoryKey:
    """Name a trajectory."""
    return TrajectoryKey("set", name, 0)


def request(name: str = "p0", turn: int = 0, *, prompt_tokens: int = 100) -> GenerationRequest:
    """Ask for one turn of a trajectory."""
    return GenerationRequest(
        key=key(name),
        attempt=1,
        turn=turn,
        prompt=Prompt((), prompt_tokens),
        sampling=SAMPLING,
        seed=0,
        max_tokens=100,
        stop=(),
    )


def completion(asked: GenerationRequest, *, tokens: int = 10) -> Completion:
    """Answer a request; the text says whose turn it was. The engine is filled in by the replica."""
    text = f"{asked.key.problem_id}/{asked.turn}"
    return Completion(text, asked.prompt.tokens or 0, tokens, "stop", engine="")


class FakeReplica(Replica):
    """Takes `turn_s` for a turn and `start_s` for a start, and dies when it is told to."""

    def __init__(
        self,
        name: str = "a",
        slots: int = 4,
        *,
        turn_s: float = 1.0,
        start_s: float = 0.0,
        on_turn: OnTurn | None = None,
        on_start: OnStart | None = None,
    ) -> None:
        """`on_turn` answers instead of the clock; `on_start` is given the start's number, and may raise."""
        super().__init__(name, slots)
        self.turn_s = turn_s
        self.start_s = start_s
        self.on_turn = on_turn
        self.on_start = on_start
        self.started_at: list[float] = []
        self.closed_at: list[float] = []
        self.requests: list[GenerationRequest] = []
        self.running = 0
        self.most_running = 0
        self._lost = anyio.Event()

    @property
    def asked(self) -> list[str]:
        """Whose turns it was asked for, in order."""
        return [one.key.problem_id for one in self.requests]

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self.closed_at)

    @override
    async def start(self) -> None:
        self.started_at.append(anyio.current_time())
        await anyio.sleep(self.start_s)
        if self.on_start is not None:
            self.on_start(len(self.started_at))
        self._lost = anyio.Event()

    @override
    async def close(self) -> None:
        self.closed_at.append(anyio.current_time())
        self._lost.set()

    def kill(self) -> None:
        """Die: its own watch finds out, and so does whoever waits for a turn."""
        self._lost.set()

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        lost = self._lost
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if lost.is_set():
                raise ReplicaLostError(f"{self.name} is dead")
            answer = await self._answer(request)
        finally:
            self.running -= 1
        return replace(answer, engine=self.name)

    async def _answer(self, request: GenerationRequest) -> Completion:
        if self.on_turn is not None:
            return await self.on_turn(request)
        await anyio.sleep(self.turn_s)
        return completion(request)

    @override
    async def wait_lost(self) -> str:
        await self._lost.wait()
        return f"{self.name} was killed"

    @override
    async def stats(self) -> ReplicaStats:
        return ReplicaStats(running=self.running)


class FakePool(EnginePool):
    """A pool over fake replicas; what it took and gave back stands in `life`."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        policy: RestartPolicy | None = None,
        prefix_caching: bool = False,
    ) -> None:
        """The dispatcher is the real one."""
        self.dispatcher = Dispatcher([one.slots for one in replicas], prefix_caching=prefix_caching)
        super().__init__(replicas, dispatcher=self.dispatcher, policy=policy)
        self.life: list[str] = []

    @override
    async def prepare(self) -> None:
        self.life.append("prepared")

    @override
    async def release(self) -> None:
        self.life.append("released")

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(messages, len(messages))

    @override
    def identity(self) -> dict[str, object]:
        return {"kind": "fake"}

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the replicas are fakes",)
