"""A real engine whose turns act: the small model writes, and what it wrote goes on into the conversation."""

from dataclasses import replace

from typing_extensions import override

from runner.engines.base import Completion, Engine, GenerationRequest, Prompt
from runner.protocol.prompt import Message

TURNS = 4


class ActingEngine(Engine):
    """Puts an action, or in the last turn an answer, behind what the real engine wrote."""

    def __init__(self, real: Engine) -> None:
        self._real = real

    @override
    async def start(self) -> None:
        return

    @override
    async def close(self) -> None:
        return

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return await self._real.render(messages)

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        wrote = await self._real.generate(request)
        said = wrote.text.replace("Action:", "").replace("nswer", "").replace("boxed", "")
        act = 'Action: {"name": "bash", "arguments": {"command": "sleep 0.2"}}'
        end = "Final answer: 0" if request.turn == TURNS - 1 else act
        return replace(wrote, text=f"{said}\n{end}")

    @override
    def identity(self) -> dict[str, object]:
        return self._real.identity()

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the turns' ends are made up",)
