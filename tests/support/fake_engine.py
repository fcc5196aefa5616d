"""An engine whose every turn is what the test says."""

import inspect
from collections.abc import Awaitable, Callable

from typing_extensions import override

from runner.engines.base import Completion, Engine, GenerationRequest, Prompt
from runner.engines.scripted import count_bytes, render_chatml
from runner.protocol.prompt import Message

Said = str | Completion | Awaitable[str | Completion]


class FakeEngine(Engine):
    """Asks `on_turn` for each completion; what that raises, the engine raises. Tokens are ChatML's bytes."""

    def __init__(self, on_turn: Callable[[GenerationRequest], Said], *, counts: bool = True) -> None:
        """`counts=False` is a server that cannot count a prompt."""
        self.on_turn = on_turn
        self.requests: list[GenerationRequest] = []
        self.started = 0
        self.closed = 0
        self._counts = counts

    @override
    async def start(self) -> None:
        self.started += 1

    @override
    async def close(self) -> None:
        self.closed += 1

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(
            messages=messages, tokens=count_bytes(render_chatml(messages)) if self._counts else None
        )

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        self.requests.append(request)
        said = self.on_turn(request)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Completion):
            return said
        return Completion(
            text=said,
            prompt_tokens=request.prompt.tokens or 0,
            completion_tokens=count_bytes(said),
            finish_reason="stop",
            engine="fake",
        )

    @override
    def identity(self) -> dict[str, object]:
        return {"kind": "fake"}

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the engine is a fake",)
