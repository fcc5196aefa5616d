"""`[engine] kind = "openai"`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from runner.engines.base import Engine
from runner.engines.kind import EngineKind, EngineOptions, EngineSection, RunFacts
from runner.engines.openai_wire import OMITTABLE_PARAMETERS
from runner.errors import UserError
from runner.section import Positive, Seconds


class OpenAIEngineSettings(EngineSection):
    """`[engine] kind = "openai"`: a model served elsewhere."""

    kind: Literal["openai"]
    model: str
    base_urls: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
    api_key_env: str = "OPENAI_API_KEY"
    request_timeout_s: Seconds = 1800.0
    attempts: Positive = 6
    omit_parameters: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @field_validator("omit_parameters")
    @classmethod
    def _can_be_left_out(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if set(names) <= OMITTABLE_PARAMETERS:
            return names
        raise ValueError(f"only these can be left out: {', '.join(sorted(OMITTABLE_PARAMETERS))}")


def _build(settings: OpenAIEngineSettings, run: RunFacts) -> Engine:
    from runner.engines.openai import OpenAIEngine, OpenAISettings  # noqa: PLC0415 - only where a run has one

    return OpenAIEngine(
        OpenAISettings(
            model=settings.model,
            base_urls=settings.base_urls,
            context_tokens=run.context_tokens,
            api_key_env=settings.api_key_env,
            request_timeout_s=settings.request_timeout_s,
            attempts=settings.attempts,
            omit_parameters=frozenset(settings.omit_parameters),
        )
    )


def _of_options(options: EngineOptions) -> dict[str, Any]:
    if not options.model or not options.base_urls:
        raise UserError(
            "--engine openai needs a model and a server", remedy="add --model NAME --base-url URL"
        )
    return {"model": options.model, "base_urls": list(options.base_urls)}


def _servers(settings: OpenAIEngineSettings) -> Mapping[str, str]:
    return {url: f"{url.rstrip('/')}/models" for url in settings.base_urls}


KIND = EngineKind(
    OpenAIEngineSettings,
    _build,
    _of_options,
    _servers,
    harmless_settings=frozenset({"base_urls", "api_key_env", "request_timeout_s", "attempts"}),
    harmless_identity=frozenset({"base_urls"}),
)
