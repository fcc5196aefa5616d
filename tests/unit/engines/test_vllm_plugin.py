"""The plugin without vLLM: it acts on what it finds registered, and a child dies with its parent."""

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import pytest

from runner.engines.vllm import plugin


@dataclass
class FakeRegistry:
    models: dict[str, Any] = field(default_factory=dict)
    registered: list[tuple[str, str]] = field(default_factory=list)

    def register_model(self, name: str, place: str) -> None:
        self.registered.append((name, place))
        self.models[name] = Registered(*place.split(":"))


@dataclass
class Registered:
    module_name: str
    class_name: str


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """A vLLM whose class is the one that refuses."""
    fake = FakeRegistry({plugin.ARCHITECTURE: Registered(plugin.THEIRS, plugin.ARCHITECTURE)})
    module = ModuleType("vllm")
    module.ModelRegistry = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    source = f"def set_moe_parameters(self):\n    raise RuntimeError('{plugin.REFUSAL}')"
    monkeypatch.setattr(plugin, "_source_of", lambda _: source)
    plugin._say_once.cache_clear()
    yield fake
    plugin._say_once.cache_clear()


def test_our_class_takes_the_place_of_the_one_that_refuses_and_only_once(registry: FakeRegistry) -> None:
    plugin.register()
    plugin.register()

    assert registry.registered == [
        ("Qwen3NextForCausalLM", "runner.engines.vllm.qwen3_next:Qwen3NextForCausalLM")
    ]


@pytest.mark.parametrize(
    ("models", "source", "reason"),
    [
        ({}, None, "it has no Qwen3NextForCausalLM"),
        ({plugin.ARCHITECTURE: Registered("other.module", "X")}, None, "another than expected"),
        (None, "def set_moe_parameters(self): pass", "does not refuse checkpoints without experts"),
        (None, plugin.REFUSAL, "does not refuse checkpoints without experts"),
        (None, "", "does not refuse checkpoints without experts"),
    ],
)
def test_it_steps_aside_where_vllm_is_not_as_expected_and_says_so_once(
    registry: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    models: dict[str, Any] | None,
    source: str | None,
    reason: str,
) -> None:
    if models is not None:
        registry.models = models
    if source is not None:
        monkeypatch.setattr(plugin, "_source_of", lambda _: source)
    with caplog.at_level(logging.WARNING):
        plugin.register()
        plugin.register()

    assert registry.registered == []
    assert [reason in record.message for record in caplog.records] == [True]


def test_the_source_of_a_module_that_is_not_there_is_empty() -> None:
    assert plugin._source_of("runner.no_such_module") == ""
    assert "def plan_jobs" in plugin._source_of("runner.scheduler")


def _core(told: Connection) -> None:
    plugin.end_with_the_actor()
    told.send(os.getpid())
    time.sleep(60)


def _actor(name: str, told: Connection) -> None:
    context = multiprocessing.get_context("spawn")
    core = context.Process(target=_core, args=(told,), name=name)
    core.start()
    time.sleep(60)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a child's test helper
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("name", "dies"), [("EngineCore", True), ("EngineCore_DP0", True), ("Other", False)])
def test_an_engine_core_and_nothing_else_dies_with_its_parent(name: str, dies: bool) -> None:
    context = multiprocessing.get_context("spawn")
    heard, told = context.Pipe(duplex=False)
    actor = context.Process(target=_actor, args=(name, told))
    actor.start()
    assert heard.poll(60)
    core = heard.recv()
    try:
        assert actor.pid is not None
        os.kill(actor.pid, signal.SIGKILL)
        actor.join(10)
        deadline = time.monotonic() + (10 if dies else 0.5)
        while _runs(core) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _runs(core) is not dies
    finally:
        if _runs(core):
            os.kill(core, signal.SIGKILL)


def test_this_process_asks_for_no_signal() -> None:
    plugin.end_with_the_actor()  # it is nobody's engine core, so it lives on
