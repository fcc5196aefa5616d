"""The scripted engine: each trajectory's own completions, from the first at every attempt."""

import anyio
import pytest
from support.builders import SAMPLING

from runner.engines.base import (
    GenerationRequest,
    Prompt,
    PromptTooLongError,
    RequestRefusedError,
    ScriptExhaustedError,
    TrajectoryKey,
)
from runner.engines.scripted import Script, ScriptedEngine, count_bytes, render_chatml
from runner.errors import UserError

pytestmark = pytest.mark.anyio
KEY = TrajectoryKey("set", "p0", 0)
OTHER = TrajectoryKey("set", "p1", 0)


def engine(*completions: str | None, context_tokens: int = 1000, latency_s: float = 0.0) -> ScriptedEngine:
    script = Script({KEY: completions, OTHER: ("other",)})
    return ScriptedEngine(script, context_tokens=context_tokens, latency_s=latency_s)


def request(key: TrajectoryKey = KEY, *, attempt: int = 1, tokens: int = 10) -> GenerationRequest:
    return GenerationRequest(key, attempt, 0, Prompt((), tokens), SAMPLING, 1, 100, ())


async def test_a_trajectory_gets_its_own_completions_in_order() -> None:
    scripted = engine("a", "b")

    said = [(await scripted.generate(request(key))).text for key in (KEY, OTHER, KEY)]

    assert said == ["a", "other", "b"]


async def test_every_attempt_begins_with_the_first_completion() -> None:
    scripted = engine("a", "b")

    said = [(await scripted.generate(request(attempt=attempt))).text for attempt in (1, 1, 2)]

    assert said == ["a", "b", "a"]


async def test_a_null_is_a_refusal_and_takes_its_place() -> None:
    scripted = engine(None, "b")

    with pytest.raises(RequestRefusedError, match="RuntimeError: engine refused the prompt"):
        await scripted.generate(request())
    assert (await scripted.generate(request())).text == "b"


async def test_a_turn_beyond_the_script_is_a_failure_of_ours() -> None:
    with pytest.raises(ScriptExhaustedError, match="set/p0:sample00 has 0 completions"):
        await engine().generate(request())


async def test_a_prompt_that_does_not_fit_takes_no_completion() -> None:
    scripted = engine("a", context_tokens=110)

    with pytest.raises(PromptTooLongError):
        await scripted.generate(request(tokens=11))
    assert (await scripted.generate(request(tokens=10))).text == "a"


async def test_tokens_are_the_bytes_of_the_conversation_as_chatml() -> None:
    prompt = await engine().render(({"role": "user", "content": "é\ud800"},))

    rendered = "<|im_start|>user\né\ud800<|im_end|>\n<|im_start|>assistant\n"
    assert render_chatml(prompt.messages) == rendered
    assert prompt.tokens == count_bytes(rendered) == len(rendered) + 1 + 2


async def test_latency_is_waited_for() -> None:
    started = anyio.current_time()

    await engine("a", latency_s=0.1).generate(request())

    assert anyio.current_time() - started >= 0.1


def test_a_run_that_the_script_does_not_cover_is_refused() -> None:
    with pytest.raises(UserError, match="no script for 1 of 2 trajectories, the first is set/p2:sample00"):
        engine("a").require([KEY, TrajectoryKey("set", "p2", 0)])


def test_the_identity_tells_scripts_apart() -> None:
    assert engine("a").identity()["sha256"] != engine("b").identity()["sha256"]
    assert engine("a").identity() == engine("a").identity()
    assert engine("\ud800", None).identity()["kind"] == "scripted"
