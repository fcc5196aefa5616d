"""Settings and requests for the engine that asks a server."""

from typing import Any

from runner.engines.base import (
    GenerationRequest,
    Prompt,
    TrajectoryKey,
)
from runner.engines.openai import OpenAISettings
from runner.protocol.prompt import Message
from support.builders import SAMPLING
from support.openai_server import MODEL

MESSAGES: tuple[Message, ...] = (
    {"role": "system", "content": "Use the shell."},
    {"role": "user", "content": "How many?"},
)


def settings(*urls: str, **changes: Any) -> OpenAISettings:
    values: dict[str, Any] = {
        "model": MODEL,
        "base_urls": urls,
        "context_tokens": 4000,
        "attempts": 4,
        "request_timeout_s": 5.0,
        "backoff_cap_s": 0.01,
    }
    return OpenAISettings(**values | changes)


def request(messages: tuple[Message, ...] = MESSAGES, *, seed: int = 1234) -> GenerationRequest:
    return GenerationRequest(
        key=TrajectoryKey("set", "p0", 0),
        attempt=1,
        turn=0,
        prompt=Prompt(messages=messages, tokens=None),
        sampling=SAMPLING,
        seed=seed,
        max_tokens=500,
        stop=("<form>", "\n\n"),
    )
