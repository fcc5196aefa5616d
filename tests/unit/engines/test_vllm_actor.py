"""What runs in an engine's actor, over a vLLM that is a stand-in: whose an error is, and what a turn is."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest

from runner.engines.base import Sampling
from runner.engines.vllm import actor as actor_module
from runner.engines.vllm.actor import EngineActor
from runner.engines.vllm.wire import (
    Device,
    EngineConfig,
    Failure,
    FailureKind,
    Generated,
    GenerationCall,
    pack_tokens,
)

pytestmark = pytest.mark.anyio

SAMPLING = Sampling(
    temperature=1.0, top_p=0.9, top_k=40, min_p=0.1, presence_penalty=2.0, repetition_penalty=1.1
)
CALL = GenerationCall("r1", pack_tokens((1, 2, 3)), SAMPLING, seed=7, max_tokens=5, stop=("Observation:",))


class EngineDeadError(Exception):
    """As vLLM's."""


class VLLMValidationError(ValueError):
    """As vLLM's."""


class FakeEngine:
    """Ends every request as `on_request` says."""

    def __init__(self, on_request: Callable[[], Any]) -> None:
        self.on_request = on_request
        self.asked: list[tuple[Any, Any, str]] = []
        self.errored = False
        self.shut_down = 0
        self.cancelled = False
        self.output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: 0)
        manager = SimpleNamespace(finished_procs=lambda: {"EngineCore": -9})
        self.engine_core = SimpleNamespace(resources=SimpleNamespace(engine_manager=manager))

    async def generate(self, prompt: Any, parameters: Any, request_id: str) -> AsyncIterator[Any]:
        self.asked.append((prompt, parameters, request_id))
        try:
            answer = self.on_request()
            yield await answer if asyncio.iscoroutine(answer) else answer
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def shutdown(self) -> None:
        self.shut_down += 1


def output(**changes: Any) -> SimpleNamespace:
    metrics = SimpleNamespace(queued_ts=10.0, scheduled_ts=10.5, first_token_ts=12.0, last_token_ts=15.0)
    completion = SimpleNamespace(text="a", token_ids=[4, 5, 6], finish_reason="stop")
    return SimpleNamespace(**{"outputs": [completion], "num_cached_tokens": 2, "metrics": metrics} | changes)


def raising(error: Exception) -> Callable[[], Any]:
    def on_request() -> Any:
        raise error

    return on_request


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[EngineActor, FakeEngine]]:
    """An actor over a stand-in, its own output left where it is."""
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"SamplingParams": SimpleNamespace, "TokensPrompt": dict},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final")},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.exceptions": {"EngineDeadError": EngineDeadError},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(actor_module, "_write_to", lambda _: None)
    monkeypatch.setattr(actor_module.os, "environ", {})

    def make(on_request: Callable[[], Any] = output, **config: Any) -> tuple[EngineActor, FakeEngine]:
        values: dict[str, Any] = {
            "model": "m",
            "device": Device.CPU,
            "dtype": "float32",
            "context_tokens": 10,
            "max_num_seqs": 2,
            "seed": 0,
            "log_path": str(tmp_path / "log"),
        }
        actor, engine = EngineActor(EngineConfig(**values | config)), FakeEngine(on_request)
        actor._engine = engine
        return actor, engine

    return make


Make = Callable[..., tuple[EngineActor, FakeEngine]]


async def test_a_turn_is_asked_for_with_every_setting_and_the_prompt_s_own_tokens(make: Make) -> None:
    actor, engine = make()

    await actor.generate(CALL)

    ((prompt, parameters, request_id),) = engine.asked
    assert (prompt, request_id) == ({"prompt_token_ids": [1, 2, 3]}, "r1")
    assert vars(parameters) == {
        "n": 1,
        "temperature": 1.0,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 2.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.1,
        "seed": 7,
        "stop": ["Observation:"],
        "max_tokens": 5,
        "include_stop_str_in_output": False,
        "skip_special_tokens": True,
        "output_kind": "final",
    }


async def test_a_turn_is_told_with_its_tokens_and_where_its_time_went(make: Make) -> None:
    actor, _ = make(prefix_caching=True)

    reply = await actor.generate(CALL)

    assert isinstance(reply, Generated)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("a", 3, 3)
    assert (reply.finish_reason, reply.cached_tokens) == ("stop", 2)
    assert (reply.timing.queue_s, reply.timing.prefill_s, reply.timing.decode_s) == (0.5, 1.5, 3.0)


async def test_what_is_not_known_is_none(make: Make) -> None:
    actor, _ = make(lambda: output(metrics=None))

    reply = await actor.generate(CALL)

    assert isinstance(reply, Generated)
    assert reply.cached_tokens is None
    assert (reply.timing.queue_s, reply.timing.prefill_s, reply.timing.decode_s) == (None, None, None)


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (ValueError("top_p must be"), FailureKind.REFUSED, "ValueError: top_p must be"),
        (VLLMValidationError("bad"), FailureKind.REFUSED, "VLLMValidationError: bad"),
        (
            VLLMValidationError("This model's maximum context length is 10 tokens."),
            FailureKind.PROMPT_TOO_LONG,
            "VLLMValidationError: This model's maximum",
        ),
        (EngineDeadError("x"), FailureKind.ENGINE, "the engine core is gone (exit code -9)"),
        (RuntimeError("y"), FailureKind.ENGINE, "RuntimeError: y"),
        (KeyError("z"), FailureKind.ENGINE, "KeyError: 'z'"),
    ],
)
async def test_an_error_is_the_prompt_s_or_the_engine_s(
    make: Make, error: Exception, kind: FailureKind, told: str
) -> None:
    actor, _ = make(raising(error))

    reply = await actor.generate(CALL)

    assert isinstance(reply, Failure)
    assert reply.kind is kind
    assert reply.original.startswith(told)


async def test_what_vllm_wraps_is_told_by_what_is_inside(make: Make) -> None:
    wrapper = RuntimeError()
    wrapper.__cause__ = OSError("disk")
    actor, _ = make(raising(wrapper))

    assert await actor.generate(CALL) == Failure(FailureKind.ENGINE, "OSError: disk")


async def test_a_prompt_that_leaves_no_room_is_not_even_asked(make: Make) -> None:
    actor, engine = make(context_tokens=3)

    reply = await actor.generate(CALL)

    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.PROMPT_TOO_LONG
    assert engine.asked == []


async def test_a_cancelled_call_cancels_the_request(make: Make) -> None:
    actor, engine = make(lambda: anyio.sleep(60))

    with anyio.move_on_after(0.05):
        await actor.generate(CALL)

    assert engine.cancelled


async def test_a_dead_core_is_missed_with_its_exit_code(make: Make) -> None:
    actor, engine = make()

    async def die() -> None:
        await anyio.sleep(0.05)
        engine.errored = True

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
            assert await actor.wait_dead() == "the engine core is gone (exit code -9)"
    assert await actor.stats() == Failure(FailureKind.ENGINE, "the engine is gone")


async def test_an_engine_that_is_shut_down_is_not_said_to_have_died(make: Make) -> None:
    actor, engine = make()

    async def stop() -> None:
        await anyio.sleep(0.05)
        await actor.stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        assert await actor.wait_dead() == "the engine was shut down"
    assert engine.shut_down == 1
    assert isinstance(await actor.generate(CALL), Failure)


async def test_an_engine_that_cannot_be_made_is_told_and_the_old_one_is_shut_down(make: Make) -> None:
    actor, engine = make()

    reply = await actor.start()  # this vLLM has nothing to make one with

    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.ENGINE
    assert reply.original.startswith("ModuleNotFoundError: ")
    assert engine.shut_down == 1
