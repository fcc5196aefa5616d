"""The OpenAI-compatible wire format: request bodies, responses and whose fault an error is. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from runner.engines.base import GenerationRequest
from runner.protocol.prompt import Message


class Blame(str, Enum):
    """What an HTTP answer means for the trajectory that asked."""

    PROMPT_TOO_LONG = "prompt_too_long"
    REFUSED = "refused"
    """This very prompt will be refused again: a deterministic 400."""
    RETRYABLE = "retryable"
    MISCONFIGURED = "misconfigured"
    """Key, model name, address, account or proxy is wrong: every trajectory would fail alike, none is to
    blame, and trying the same request again at once does not help."""


_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_REFUSED_STATUS = frozenset({400, 422})
_MAY_BE_TOO_LONG_STATUS = _REFUSED_STATUS | {413, 429}
"""Some hosts answer a prompt that can never fit with 413 or 429; waiting would not help."""
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "prompt_too_long", "string_above_max_length"})
_TOO_LONG_PHRASES = (
    # OpenAI and vLLM up to 0.19: "This model's maximum context length is 16384 tokens. However, …"
    "maximum context length",
    # vLLM's engine: "The decoder prompt (length 900) is longer than the maximum model length of 800."
    "longer than the maximum model length",
    # vLLM from 0.15: "You passed 99073 input tokens and requested 32000 output tokens. However, the model's
    # context length is only 131072 tokens, …"
    "context length is only",
    "too long to fit into the model",
    "longer than the model's context length",
    "exceeds the model's context",
    # llama.cpp, of the request
    "exceeds the available context size",
    "context window exceeded",
    "prompt is too long",
)


OMITTABLE_PARAMETERS = frozenset(
    {
        "n",
        "stream",
        "seed",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "chat_template_kwargs",
    }
)
"""Fields that a server may not know. Without one of the others a turn is no turn: its length, where it
stops, and what it is about."""
FINISH_REASON_CHARS = 100


@dataclass(frozen=True)
class Reply:
    """The part of a chat completion that a turn needs."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str


class MalformedReplyError(ValueError):
    """The server answered 200 with something that is no chat completion."""


def completion_body(request: GenerationRequest, *, model: str, omit: frozenset[str]) -> dict[str, Any]:
    """Return the body of `POST /v1/chat/completions` for one turn.

    Everything that shapes the distribution is sent, because servers fill what is missing from the
    checkpoint's generation_config or their own defaults. `omit` names fields a server does not know.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in request.prompt.messages],
        "n": 1,
        "stream": False,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "stop": list(request.stop),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": 0.0,
        "repetition_penalty": sampling.repetition_penalty,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    return {name: value for name, value in body.items() if name not in omit}


def tokenize_body(messages: tuple[Message, ...], *, model: str) -> dict[str, Any]:
    """Return the body of vLLM's `POST /tokenize`, rendered as `completion_body`'s prompt is."""
    return {
        "model": model,
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": True,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def read_reply(payload: object) -> Reply:
    """Read a chat completion; raise `MalformedReplyError` that says what is missing."""
    if not isinstance(payload, Mapping):
        raise MalformedReplyError("the answer is no JSON object")
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise MalformedReplyError("the answer has no choices")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise MalformedReplyError("the answer's choice has no message")
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        raise MalformedReplyError("the message's content is no string")
    usage = payload.get("usage")
    if not isinstance(usage, Mapping):
        raise MalformedReplyError("the answer has no usage: token counts are part of a result")
    prompt_tokens, completion_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt_tokens, int) or not isinstance(completion_tokens, int):
        raise MalformedReplyError("the answer's usage has no token counts")
    return Reply(
        text=content or "",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        finish_reason=str(choices[0].get("finish_reason"))[:FINISH_REASON_CHARS],
    )


def read_token_count(payload: object) -> int:
    """Read the answer of `POST /tokenize`; raise `MalformedReplyError` where it holds no count."""
    count = payload.get("count") if isinstance(payload, Mapping) else None
    if not isinstance(count, int):
        raise MalformedReplyError("the answer has no count")
    return count


def read_error_message(payload: object) -> tuple[str, str]:
    """Return (type, message) of an error answer, in OpenAI's nested form or vLLM's older flat one."""
    if isinstance(payload, Mapping):
        error = payload.get("error", payload)
        if isinstance(error, Mapping):
            kind = error.get("type") or error.get("object") or "Error"
            message = error.get("message") or payload.get("detail") or error
            return str(kind), str(message)
        return "Error", str(error)
    return "Error", str(payload)


def _error_code(payload: object) -> str:
    error = payload.get("error", payload) if isinstance(payload, Mapping) else None
    return str(error.get("code")) if isinstance(error, Mapping) else ""


def blame(status: int, payload: object) -> Blame:
    """Say what an HTTP error answer means.

    The texts are the servers' own and no standard. Only what is known to be about this very prompt is
    the trajectory's; every other answer (a redirect, an unpaid account, a proxy) is ours.
    """
    _, message = read_error_message(payload)
    if status in _MAY_BE_TOO_LONG_STATUS and (
        _error_code(payload) in _TOO_LONG_CODES
        or any(phrase in message.lower() for phrase in _TOO_LONG_PHRASES)
    ):
        return Blame.PROMPT_TOO_LONG
    if status in _REFUSED_STATUS:
        return Blame.REFUSED
    if status in _RETRYABLE_STATUS or status >= 500:
        return Blame.RETRYABLE
    return Blame.MISCONFIGURED
