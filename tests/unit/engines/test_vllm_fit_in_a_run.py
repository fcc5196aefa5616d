"""How the fit gets into a run: what is chosen stays, what cannot be known is left alone."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gpus import ADA, MODEL, REPORT, FakeNvml, gpus, known

from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.fit import fit_engines
from runner.engines.vllm.here import fit_here
from runner.engines.vllm.kind import VllmEngineSettings
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device
from runner.plan import build_engine, make_plan
from runner.profile import load_profile


def test_the_machine_is_fitted_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    fit = fit_here(REPORT, {}, gpus=lambda: tuple(gpus(2, 81559)))
    chosen = fit_here(REPORT, {"engine.engines": 8}, gpus=lambda: tuple(gpus(4, 81559)))

    assert fit is not None
    assert fit.engines == 4
    assert chosen is not None
    assert chosen.engines == 8


@pytest.mark.parametrize(
    "settings",
    [replace(REPORT, device=Device.CPU), replace(REPORT, model="some/other")],
)
def test_where_there_is_nothing_to_fit_by_nothing_is_fitted(
    monkeypatch: pytest.MonkeyPatch, settings: VllmSettings
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    assert fit_here(settings, {}, gpus=lambda: tuple(gpus(1, 24564))) is None
    assert fit_here(REPORT, {}, gpus=lambda: ()) is None


def test_engines_of_a_cluster_are_not_fitted_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")

    assert fit_here(REPORT, {}, gpus=lambda: tuple(gpus(1, 24564))) is None


def test_an_engine_is_what_was_fitted_and_says_so() -> None:
    fit = fit_engines(gpus(1, 24564, ADA), known(), REPORT)

    identity = VllmEngine(REPORT, fit=fit).identity()

    assert (identity["engines"], identity["gpu_fraction"], identity["max_num_seqs"]) == (1, 1.0, 32)
    assert identity["fit"] == {"engines": fit.line, "differs": list(fit.differs)}
    assert VllmEngine(REPORT).identity()["fit"] is None


@pytest.mark.parametrize("name", ["interval25", "final4"])
def test_the_report_s_profiles_are_fitted(name: str) -> None:
    engine = load_profile(name).engine

    assert isinstance(engine, VllmEngineSettings)
    assert engine.fit


PROFILE = """
name = "mine"
pack = "bundled:demo"
samples = 1
[limits]
max_turns = 2
context_tokens = 131072
max_tokens_per_turn = 4096
tool_timeout_s = 5.0
observation_limit_chars = 2000
[sampling]
temperature = 1.0
top_p = 1.0
top_k = 40
min_p = 0.0
presence_penalty = 0.0
repetition_penalty = 1.0
[[datasets]]
name = "demo"
path = "bundled:demo.jsonl"
base_seed = 1
[engine]
kind = "vllm"
model = "{model}"
fit = {fit}
engines = 8
gpu_fraction = 0.5
gpu_memory_utilization = 0.42
"""


@pytest.mark.parametrize(
    ("fit", "overrides", "engines"),
    [("true", {}, 2), ("true", {"engine.engines": 1}, 1), ("false", {}, 8)],
)
def test_a_run_s_engines_are_fitted_where_its_profile_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fit: str, overrides: dict[str, Any], engines: int
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    for name in ("CUDA_VISIBLE_DEVICES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mine.toml").write_text(PROFILE.format(model=MODEL, fit=fit), encoding="utf-8")
    plan = make_plan(str(tmp_path / "mine.toml"), overrides=overrides)

    identity = build_engine(plan).identity()

    assert identity["engines"] == engines
    assert (identity["fit"] is None) == (fit == "false")
    assert plan.deviations == ()
