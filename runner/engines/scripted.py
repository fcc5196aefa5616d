"""An engine that replays completions from a file: the demo's model, and the tests'.

Its tokens are the UTF-8 bytes of the conversation rendered as ChatML. That is a rule anybody can
recompute, and the golden trajectories were recorded under it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from typing_extensions import override

from runner.engines.base import (
    Completion,
    Engine,
    GenerationRequest,
    Prompt,
    PromptTooLongError,
    RequestRefusedError,
    ScriptExhaustedError,
    TrajectoryKey,
)
from runner.errors import UserError
from runner.hashing import sha256_text
from runner.jsonl import JsonLinesError, read_json_lines
from runner.protocol.prompt import Message

REFUSAL = "RuntimeError: engine refused the prompt"
"""What a `null` in a script stands for."""

_LINE_KEYS = {"dataset", "id", "sample", "completions"}


def render_chatml(messages: Sequence[Message]) -> str:
    """Render a conversation as ChatML, the generation prompt added."""
    turns = "".join(
        f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages
    )
    return f"{turns}<|im_start|>assistant\n"


def count_bytes(text: str) -> int:
    """Count the UTF-8 bytes of `text`; a lone surrogate, which JSON can bring in, counts as three."""
    return len(text.encode("utf-8", errors="surrogatepass"))


@dataclass(frozen=True)
class Script:
    """Completions by trajectory; a `None` completion is a refusal of the prompt."""

    completions: Mapping[TrajectoryKey, tuple[str | None, ...]]

    @staticmethod
    def read(path: Path) -> "Script":
        """Read a script file: JSON lines of `{"dataset", "id", "sample", "completions"}`.

        Raises `UserError` that names file and line.
        """
        try:
            lines = list(read_json_lines(path))
        except JsonLinesError as error:
            raise UserError(
                str(error), remedy="a script is a file of JSON lines, one a trajectory"
            ) from error
        completions: dict[TrajectoryKey, tuple[str | None, ...]] = {}
        for number, line in lines:
            key, texts = _parse_line(line, f"{path}:{number}")
            if key in completions:
                raise UserError(f"{path}:{number}: {key} is scripted twice", remedy="remove one of the lines")
            completions[key] = texts
        return Script(completions)


def _parse_line(line: object, where: str) -> tuple[TrajectoryKey, tuple[str | None, ...]]:
    shape = '{"dataset": "...", "id": "...", "sample": 0, "completions": ["...", null]}'
    if not isinstance(line, dict) or set(line) != _LINE_KEYS:
        raise UserError(f"{where}: not a line of a script", remedy=f"each line is {shape}")
    dataset, problem_id, sample, texts = (line[key] for key in ("dataset", "id", "sample", "completions"))
    well_typed = (
        isinstance(dataset, str)
        and isinstance(problem_id, str)
        and isinstance(sample, int)
        and isinstance(texts, list)
        and all(text is None or isinstance(text, str) for text in texts)
    )
    if not well_typed:
        raise UserError(f"{where}: a value of the wrong type", remedy=f"each line is {shape}")
    return TrajectoryKey(dataset, problem_id, sample), tuple(texts)


@dataclass(frozen=True)
class ScriptedTurn:
    """What a script has for a turn, and how long that takes; without a completion it is refused."""

    completion: Completion | None
    seconds: float


class ScriptedEngine(Engine):
    """Replays a script, one completion a generation, each trajectory its own.

    Every attempt at a trajectory replays from its first completion. A refused turn that is tried again
    takes the next completion, as the golden trajectories have it.
    """

    def __init__(
        self,
        script: Script,
        *,
        context_tokens: int,
        latency_s: float = 0.0,
        tokens_per_s: float | None = None,
        source: str = "memory",
    ) -> None:
        """`latency_s` is waited for each turn; `tokens_per_s`, where given, adds time by length."""
        self._script = script
        self._context_tokens = context_tokens
        self._latency_s = latency_s
        self._tokens_per_s = tokens_per_s
        self._source = source
        self._position: dict[tuple[TrajectoryKey, int], int] = {}

    @override
    async def start(self) -> None:
        self._position.clear()

    @override
    async def close(self) -> None:
        return

    def require(self, keys: Sequence[TrajectoryKey]) -> None:
        """Raise `UserError` unless every trajectory of the run has a script."""
        missing = [key for key in keys if key not in self._script.completions]
        if missing:
            raise UserError(
                f"{self._source}: no script for {len(missing)} of {len(keys)} trajectories,"
                f" the first is {missing[0]}",
                remedy="add a line for each, or lower --samples",
            )

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(messages=messages, tokens=count_bytes(render_chatml(messages)))

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        line = self.take(request)
        await anyio.sleep(line.seconds)
        if line.completion is None:
            raise RequestRefusedError(REFUSAL)
        return line.completion

    def take(self, request: GenerationRequest) -> ScriptedTurn:
        """Take the next completion of a trajectory, for whoever plays it; raises as `generate` does."""
        tokens = request.prompt.tokens or 0
        if tokens + request.max_tokens > self._context_tokens:
            raise PromptTooLongError(f"{tokens} + {request.max_tokens} tokens exceed {self._context_tokens}")
        text = self._next(request)
        length = count_bytes(text or "")
        seconds = self._latency_s + (length / self._tokens_per_s if self._tokens_per_s else 0.0)
        if text is None:
            return ScriptedTurn(None, seconds)
        return ScriptedTurn(Completion(text, tokens, length, "stop", engine="scripted"), seconds)

    def _next(self, request: GenerationRequest) -> str | None:
        texts = self._script.completions.get(request.key, ())
        place = (request.key, request.attempt)
        position = self._position.get(place, 0)
        if position >= len(texts):
            raise ScriptExhaustedError(
                f"{self._source}: the script of {request.key} has {len(texts)} completions, "
                f"turn {request.turn + 1} needs one more"
            )
        self._position[place] = position + 1
        return texts[position]

    @override
    def identity(self) -> dict[str, object]:
        script = [[str(key), list(texts)] for key, texts in sorted(self._script.completions.items())]
        return {
            "kind": "scripted",
            "source": self._source,
            "trajectories": len(script),
            "sha256": sha256_text(json.dumps(script)),
        }

    @override
    def deviations(self) -> tuple[str, ...]:
        return ("the model is a script: completions were replayed, not generated",)
