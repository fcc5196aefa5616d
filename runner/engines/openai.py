"""A checkpoint served elsewhere, over any OpenAI-compatible `/v1/chat/completions`.

Several base URLs are several copies of the same model: a turn goes to the one with the fewest
requests under way, and a retry goes to another (`openai_pool`).
"""

import anyio
import httpx
from typing_extensions import override

from runner.engines.base import (
    Completion,
    Engine,
    EngineUnavailableError,
    GenerationRequest,
    Prompt,
    Sampling,
    TrajectoryKey,
)
from runner.engines.openai_pool import Answer, Endpoint, OpenAISettings, ServerPool, describe
from runner.engines.openai_wire import (
    Blame,
    MalformedReplyError,
    blame,
    completion_body,
    read_reply,
    read_token_count,
    tokenize_body,
)
from runner.errors import UserError
from runner.protocol.prompt import Message

__all__ = ["OpenAIEngine", "OpenAISettings"]

START_TIMEOUT_S = 60.0
_NO_SUCH_ROUTE = frozenset({404, 405, 501})
_SHOWN_NAME_CHARS = 100

_PROBE = GenerationRequest(
    key=TrajectoryKey("", "", 0),
    attempt=1,
    turn=0,
    prompt=Prompt(messages=({"role": "user", "content": "1"},), tokens=None),
    sampling=Sampling(
        temperature=1.0, top_p=1.0, top_k=40, min_p=0.0, presence_penalty=0.0, repetition_penalty=1.0
    ),
    seed=0,
    max_tokens=1,
    stop=("\n",),
)
"""A request with every field that a turn's has."""


class OpenAIEngine(Engine):
    """Generates turns at OpenAI-compatible servers."""

    def __init__(self, settings: OpenAISettings) -> None:
        """Nothing is contacted before `start`."""
        self._settings = settings
        self._pool = ServerPool(settings)

    @override
    async def start(self) -> None:
        if not self._pool.open():
            return
        try:
            for endpoint in self._pool.endpoints:
                with anyio.fail_after(START_TIMEOUT_S):
                    await self._check_model(endpoint)
                    await self._probe_tokenizer(endpoint)
                    await self._try_settings(endpoint)
        except TimeoutError as error:
            raise EngineUnavailableError(
                f"no answer within {START_TIMEOUT_S:.0f} s while starting"
            ) from error

    @override
    async def close(self) -> None:
        await self._pool.close()

    async def _check_model(self, endpoint: Endpoint) -> None:
        """Fail before the run where key, address or model name is wrong."""
        try:
            answer = await self._pool.probe(f"{endpoint.url}/models")
        except httpx.HTTPError as error:
            raise UserError(
                f"no server answers at {endpoint.url}: {describe(error)}",
                remedy="start it, or name another with --base-url",
            ) from error
        if answer.status_code in {401, 403}:
            raise UserError(
                f"{endpoint.url} refuses the API key (HTTP {answer.status_code})",
                remedy=f"put a valid key into the environment variable {self._settings.api_key_env}",
            )
        if answer.status_code in _NO_SUCH_ROUTE:
            return
        served = _served_models(answer)
        if served is None:
            raise UserError(
                f"{endpoint.url}/models answers HTTP {answer.status_code} without a list of models",
                remedy="name the address of an OpenAI-compatible server; it mostly ends in /v1",
            )
        if served and self._settings.model not in served:
            raise UserError(
                f"{endpoint.url} does not serve {self._settings.model!r}",
                remedy=f"name one of: {', '.join(name[:_SHOWN_NAME_CHARS] for name in served[:8])}",
            )

    async def _probe_tokenizer(self, endpoint: Endpoint) -> None:
        """Find out whether this server can count a prompt, and how long a context it serves."""
        body = tokenize_body(({"role": "user", "content": "1"},), model=self._settings.model)
        try:
            answer = await self._pool.probe(f"{endpoint.root}/tokenize", body)
        except httpx.HTTPError:
            return  # no such route, in the words of a server that hangs up on what it does not know
        counted = answer.payload if answer.status_code == 200 and isinstance(answer.payload, dict) else {}
        endpoint.tokenizes = isinstance(counted.get("count"), int)
        served = counted.get("max_model_len")
        if isinstance(served, int) and served < self._settings.context_tokens:
            raise UserError(
                f"{endpoint.url} serves a context of {served} tokens,"
                f" the profile needs {self._settings.context_tokens}",
                remedy="serve a longer context, or lower --context-tokens (then nothing is reproduced)",
            )

    async def _try_settings(self, endpoint: Endpoint) -> None:
        """Generate one token: a server that refuses a setting would refuse every prompt of the run.

        Those refusals would look like the model's own and be scored 0. What else goes wrong here may have
        passed by the first turn and is left to its retries.
        """
        body = completion_body(_PROBE, model=self._settings.model, omit=self._settings.omit_parameters)
        try:
            answer = await self._pool.probe(f"{endpoint.url}/chat/completions", body)
        except httpx.HTTPError:
            return
        if answer.is_success and isinstance(answer.payload, dict):
            try:
                read_reply(answer.payload)
            except MalformedReplyError as error:
                raise UserError(
                    f"{endpoint.url} answers without what every turn needs: {error}",
                    remedy="name a server whose chat completions have `choices` and `usage`",
                ) from error
        if answer.is_success or blame(answer.status_code, answer.payload) is Blame.RETRYABLE:
            return
        _, message = self._pool.error_of(answer.payload)
        raise UserError(
            f"{endpoint.url} refuses a request with the fields that every turn has"
            f" (HTTP {answer.status_code}): {message}",
            remedy="if it does not know a parameter, name that in engine.omit_parameters (a deviation)",
        )

    @property
    def _counts_tokens(self) -> bool:
        return all(endpoint.tokenizes for endpoint in self._pool.endpoints)

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        if not self._counts_tokens:
            return Prompt(messages=messages, tokens=None)
        body = tokenize_body(messages, model=self._settings.model)
        _, count = await self._pool.post("/tokenize", body, read_token_count, beside_v1=True)
        return Prompt(messages=messages, tokens=count)

    @override
    async def generate(self, request: GenerationRequest) -> Completion:
        body = completion_body(request, model=self._settings.model, omit=self._settings.omit_parameters)
        url, reply = await self._pool.post("/chat/completions", body, read_reply)
        return Completion(
            text=reply.text,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            finish_reason=reply.finish_reason,
            engine=url,
        )

    @override
    def identity(self) -> dict[str, object]:
        return {
            "kind": "openai",
            "model": self._settings.model,
            "base_urls": [endpoint.url for endpoint in self._pool.endpoints],
            "counts_tokens": self._counts_tokens,
            "omit_parameters": sorted(self._settings.omit_parameters),
        }

    @override
    def deviations(self) -> tuple[str, ...]:
        reasons = ["the model is served elsewhere: weights, template and engine settings are not verified"]
        if not self._counts_tokens:
            reasons.append("the server cannot count a prompt (/tokenize), so it decides about the context")
        if self._settings.omit_parameters:
            reasons.append(f"not sent: {', '.join(sorted(self._settings.omit_parameters))}")
        return tuple(reasons)


def _served_models(answer: Answer) -> list[str] | None:
    """Return the names in an answer of `/v1/models`, or None if it is no such answer."""
    payload = answer.payload
    rows = payload.get("data") if answer.status_code == 200 and isinstance(payload, dict) else None
    if not isinstance(rows, list):
        return None
    return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]
