"""Fitting engines to GPUs: a table of machines, and what is said where nothing fits."""

import json
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.fit import GIB, EngineFit, fit_engines
from runner.engines.vllm.gpu import Driver, Gpu, find_driver, visible_gpus
from runner.engines.vllm.here import fit_here
from runner.engines.vllm.settings import VllmSettings, engines_a_gpu
from runner.engines.vllm.sizes import ModelSize, assumed, measure, model_size
from runner.engines.vllm.wire import Device
from runner.errors import UserError
from runner.plan import build_engine, make_plan
from runner.profile import VllmEngineSettings, load_profile

MODEL = "zz1358m/Qwen3.5-4B-MATH-ReAct-Agentic-ESOpt"
MIB = 1 << 20
PARAMETERS = 4_205_751_296
REPORT = VllmSettings(
    model=MODEL,
    context_tokens=131072,
    engines=8,
    gpu_fraction=0.5,
    gpu_memory_utilization=0.42,
    max_num_seqs=64,
)
AMPERE, ADA, HOPPER, TURING = (8, 0), (8, 9), (9, 0), (7, 5)


def known() -> ModelSize:
    size = assumed(MODEL)
    if size is None:
        raise AssertionError("the report's checkpoint is known by name")
    return size


def gpus(count: int, mib: int, capability: tuple[int, int] = HOPPER) -> list[Gpu]:
    return [Gpu("card", mib * MIB, capability, index) for index in range(count)]


def shape(fit: EngineFit) -> tuple[int, float, float, int]:
    return fit.engines, fit.gpu_fraction, fit.gpu_memory_utilization, fit.max_num_seqs


@pytest.mark.parametrize(
    ("count", "mib", "capability", "expected"),
    [
        (1, 24564, ADA, (1, 1.0, 0.9, 32)),  # RTX 4090
        (1, 23028, ADA, (1, 1.0, 0.9, 28)),  # L4, A10
        (1, 40960, AMPERE, (1, 1.0, 0.9, 64)),
        (1, 49140, ADA, (1, 1.0, 0.9, 64)),
        (1, 81559, HOPPER, (2, 0.5, 0.42, 64)),
        (2, 81920, AMPERE, (4, 0.5, 0.42, 64)),
        (4, 81920, AMPERE, (8, 0.5, 0.42, 64)),
        (4, 81559, HOPPER, (8, 0.5, 0.42, 64)),
        (8, 81559, HOPPER, (16, 0.5, 0.42, 64)),
        (1, 143771, HOPPER, (2, 0.5, 0.42, 64)),
        (8, 143771, HOPPER, (16, 0.5, 0.42, 64)),
    ],
)
def test_engines_are_fitted_to_the_machine(
    count: int, mib: int, capability: tuple[int, int], expected: tuple[int, float, float, int]
) -> None:
    fit = fit_engines(gpus(count, mib, capability), known(), REPORT)

    assert shape(fit) == expected
    assert fit.context_tokens == 131072
    assert fit.cache_tokens >= 131072
    assert engines_a_gpu(fit.gpu_fraction) * fit.gpu_memory_utilization <= 1


@pytest.mark.parametrize(("mib", "capability"), [(81920, AMPERE), (81559, HOPPER)])
def test_the_report_s_machine_gets_exactly_the_report_s_engines(
    mib: int, capability: tuple[int, int]
) -> None:
    fit = fit_engines(gpus(4, mib, capability), known(), REPORT)

    assert fit.differs == ()
    assert fit.applied(REPORT) == REPORT


def test_what_differs_from_the_report_is_said() -> None:
    fit = fit_engines(gpus(1, 24564, ADA), known(), REPORT)

    assert fit.differs == (
        "engines 1, not 8",
        "gpu_fraction 1, not 0.5",
        "gpu_memory_utilization 0.9, not 0.42",
        "max_num_seqs 32, not 64",
    )
    assert fit.line.startswith("1 engine of 1 GPU and 0.9 of its memory, context 131072, batches of 32")
    assert fit.notes == ("sizes are assumed: the checkpoint is not here yet",)


def test_too_small_a_gpu_is_told_what_would_fit() -> None:
    with pytest.raises(UserError, match=r"needs 14\.9 GiB of a GPU") as caught:
        fit_engines(gpus(1, 16376, ADA), known(), REPORT)

    remedy = caught.value.remedy or ""
    assert "--context-tokens 114688" in remedy
    assert "no reproduction" in remedy
    shorter = replace(REPORT, context_tokens=114688)
    assert fit_engines(gpus(1, 16376, ADA), known(), shorter).engines == 1


def test_where_not_even_the_weights_fit_no_context_is_proposed() -> None:
    with pytest.raises(UserError) as caught:
        fit_engines(gpus(1, 8188, ADA), known(), REPORT)

    assert "--context-tokens" not in (caught.value.remedy or "")
    assert "its weights alone are 7.8 GiB" in (caught.value.remedy or "")
    assert "--engine openai" in (caught.value.remedy or "")


def test_a_gpu_without_bfloat16_is_refused() -> None:
    with pytest.raises(UserError, match=r"compute capability 7\.5") as caught:
        fit_engines([Gpu("Tesla T4", 15360 * MIB, TURING, 0)], known(), REPORT)

    assert "8.0 or newer" in (caught.value.remedy or "")


def test_one_old_gpu_among_others_can_be_left_out() -> None:
    mixed = [*gpus(2, 81559), Gpu("Tesla T4", 15360 * MIB, TURING, 2)]

    with pytest.raises(UserError, match="Tesla T4") as caught:
        fit_engines(mixed, known(), REPORT)

    assert "CUDA_VISIBLE_DEVICES=0,1" in (caught.value.remedy or "")


def test_one_small_gpu_among_others_can_be_left_out() -> None:
    mixed = [Gpu("small", 12288 * MIB, ADA, 0), Gpu("large", 81559 * MIB, HOPPER, 1)]

    with pytest.raises(UserError) as caught:
        fit_engines(mixed, known(), REPORT)

    assert "CUDA_VISIBLE_DEVICES=1;" in (caught.value.remedy or "")


def test_of_different_gpus_the_smallest_decides() -> None:
    fit = fit_engines([*gpus(1, 81559), *gpus(1, 24564)], known(), REPORT)

    assert shape(fit) == (2, 1.0, 0.9, 32)
    assert "the smallest, of 24.0 GiB, decides" in fit.notes[0]


def test_a_gpu_that_the_driver_tells_nothing_of_but_its_memory_is_taken() -> None:
    assert fit_engines([Gpu("card", 81559 * MIB)], known(), REPORT).engines == 2


def test_no_gpu_is_said() -> None:
    with pytest.raises(UserError, match="no GPU found"):
        fit_engines([], known(), REPORT)


def test_a_slice_of_a_gpu_is_one_gpu_of_its_size() -> None:
    part = Gpu("A100 MIG 3g.40gb", 40192 * MIB, AMPERE, 0, "MIG-a", is_slice=True)

    fit = fit_engines([part], known(), REPORT)

    assert shape(fit)[:3] == (1, 1.0, 0.9)
    assert any("MIG" in note for note in fit.notes)


# ── what somebody chose stays ────────────────────────────────────────────────────────────────────────────


def test_chosen_engines_stay() -> None:
    fit = fit_engines(gpus(4, 81559), known(), replace(REPORT, engines=3), fixed={"engines"})

    assert shape(fit) == (3, 0.5, 0.42, 64)


def test_more_engines_than_fit_are_refused_with_the_number_that_does() -> None:
    with pytest.raises(UserError, match="8 engines do not fit: 1 GPU of") as caught:
        fit_engines(gpus(1, 24564), known(), REPORT, fixed={"engines"})

    assert caught.value.remedy == "--engines 1: it takes longer and changes no result"


def test_a_chosen_fraction_brings_its_share_of_the_memory() -> None:
    thirds = replace(REPORT, gpu_fraction=1 / 3)

    fit = fit_engines(gpus(1, 143771), known(), thirds, fixed={"gpu_fraction"})

    assert (fit.engines, fit.gpu_fraction, fit.gpu_memory_utilization) == (3, 1 / 3, 0.28)


def test_a_chosen_fraction_that_is_too_small_is_named() -> None:
    with pytest.raises(UserError) as caught:
        fit_engines(gpus(1, 24564), known(), REPORT, fixed={"gpu_fraction"})

    assert "leave gpu_fraction to the fit" in (caught.value.remedy or "")


@pytest.mark.parametrize(("share", "expected"), [(0.45, (8, 0.5, 0.45)), (0.8, (4, 1.0, 0.8))])
def test_a_chosen_share_of_the_memory_stays(share: float, expected: tuple[int, float, float]) -> None:
    chosen = replace(REPORT, gpu_memory_utilization=share)

    fit = fit_engines(gpus(4, 81559), known(), chosen, fixed={"gpu_memory_utilization"})

    assert shape(fit)[:3] == expected


def test_a_chosen_batch_stays() -> None:
    chosen = replace(REPORT, max_num_seqs=200)

    assert fit_engines(gpus(1, 24564), known(), chosen, fixed={"max_num_seqs"}).max_num_seqs == 200


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────

HYBRID: dict[str, Any] = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 32,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
    "hidden_size": 2560,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "torch_dtype": "bfloat16",
}
STATE = 8192 * 3 * 2 + 32 * 128 * 128 * 2
"""One GDN layer's, in bytes, as vLLM has it (tests/engine): 1,097,728, in pages of 272 tokens."""


def test_what_is_assumed_is_what_such_a_configuration_says() -> None:
    assert model_size(HYBRID, 2 * PARAMETERS) == replace(known(), assumed=False)
    assert known().page_tokens == 272
    assert 0 <= known().state_bytes - 24 * STATE < 24 * 16 * 4096


def test_the_assumed_configuration_has_the_published_number_of_parameters() -> None:
    hidden, vocabulary, feed_forward = 2560, 248_320, 9216
    full = hidden * 16 * 256 * 2 + 2 * hidden * 4 * 256 + 16 * 256 * hidden + 2 * 256
    linear = hidden * 12_288 + hidden * 64 + 8192 * 4 + 32 + 32 + 128 + 4096 * hidden
    every = 3 * hidden * feed_forward + 2 * hidden

    assert vocabulary * hidden + 8 * full + 24 * linear + 32 * every + hidden == PARAMETERS
    assert known().weights_bytes == 2 * PARAMETERS


def test_an_interval_says_the_same_as_a_list_of_layers() -> None:
    interval = {name: value for name, value in HYBRID.items() if name != "layer_types"}

    assert model_size(interval | {"full_attention_interval": 4}, 1) == model_size(HYBRID, 1)


def test_the_states_of_a_qwen3_5_are_in_the_format_that_it_names() -> None:
    nested = {"model_type": "qwen3_5", "text_config": HYBRID | {"mamba_ssm_dtype": "float32"}}

    # 32 heads of 128 x 128 in four bytes, the convolution in two: 2,146,304, or 524 tokens.
    assert model_size(nested, 1).page_tokens == 528
    assert model_size(HYBRID | {"mamba_ssm_dtype": "float32"}, 1).page_tokens == 272


def test_a_plain_model_has_no_states() -> None:
    config = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}

    size = model_size(config, 100)

    assert (size.kv_bytes_a_token, size.state_bytes, size.page_tokens) == (30 * 2 * 3 * 64 * 2, 0, 16)


def test_four_bytes_a_value_double_everything() -> None:
    half, whole = model_size(HYBRID, 100), model_size(HYBRID, 100, dtype="float32")

    assert (whole.weights_bytes, whole.kv_bytes_a_token) == (200, 2 * half.kv_bytes_a_token)
    assert model_size(HYBRID | {"torch_dtype": "float32"}, 200).weights_bytes == 100


def test_sequences_take_whole_pages() -> None:
    size = ModelSize(0, kv_bytes_a_token=10, state_bytes=5, page_tokens=16)

    assert size.sequence_bytes(17) == 32 * 10 + 5
    assert size.longest(size.sequence_bytes(32)) == 32
    assert size.longest(size.sequence_bytes(32) - 1) == 16
    assert size.longest(0) == 0


def test_a_checkpoint_that_is_here_is_measured(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HYBRID), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}" + bytes(90))

    assert measure("any/name", tmp_path) == model_size(HYBRID, 100)


def test_a_checkpoint_whose_weights_are_not_here_yet_is_assumed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HYBRID), encoding="utf-8")

    assert measure(MODEL, tmp_path) == known()


def test_nothing_is_made_up_for_an_unknown_model(tmp_path: Path) -> None:
    assert measure("some/other", None) is None
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(bytes(8))
    assert measure("some/other", tmp_path) is None


# ── the driver ───────────────────────────────────────────────────────────────────────────────────────────


class FakeNvml:
    """NVML's bindings over some GPUs; `mig` cuts them into slices of 20 GiB."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, mig: bool = False, count: int = 1) -> None:
        self.mig, self.count = mig, count

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
            "nvmlDeviceGetName": lambda handle: f"card {handle}",
            "nvmlDeviceGetUUID": lambda handle: f"uuid-{handle}",
            "nvmlDeviceGetIndex": lambda _handle: 0,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
                total=20 * GIB if handle == "slice0" else 80 * GIB, used=GIB
            ),
            "nvmlDeviceIsMigDeviceHandle": lambda handle: handle.startswith("slice"),
            "nvmlDeviceGetMigMode": lambda _handle: (1, 1) if self.mig else (0, 0),
            "nvmlDeviceGetMaxMigDeviceCount": lambda _handle: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda _handle, number: f"slice{number}",
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda _handle: "gpu0",
            "nvmlDeviceGetCudaComputeCapability": self._capability,
        }
        if name not in answers:
            raise AttributeError(name)
        return answers[name]

    def _capability(self, handle: str) -> tuple[int, int]:
        if handle.startswith("slice"):
            raise self.NVMLError
        return AMPERE


def test_a_gpu_is_described_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    (found,) = visible_gpus()

    assert found == Gpu("card gpu0", 80 * GIB, AMPERE, 0, "uuid-gpu0")
    assert found.used_bytes == GIB
    assert find_driver() == Driver("570.86.15", usable=True, cuda=(12, 8))


def test_a_sliced_gpu_is_its_first_slice_with_the_whole_one_s_capability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(mig=True, count=2))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert visible_gpus() == (Gpu("card slice0", 20 * GIB, AMPERE, 0, "uuid-slice0", is_slice=True),)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.183.01  Release Build  (builder)",
    ],
)
def test_a_driver_whose_library_is_not_here_is_known_by_its_kernel_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (tmp_path / "version").write_text(f"{line}\nGCC version: gcc 12\n", encoding="ascii")

    driver = find_driver(tmp_path / "version")

    assert driver == Driver("535.183.01", usable=False)
    assert driver is not None
    assert driver.branch == 535


def test_no_driver_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert find_driver(tmp_path / "nowhere") is None


# ── into a run ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_shown_before_a_start_is_engines_differences_and_notes() -> None:
    lines = fit_engines(gpus(1, 24564, ADA), known(), REPORT).lines

    assert lines[0].startswith("1 engine of 1 GPU")
    assert lines[1].startswith("unlike the report: engines 1, not 8")
    assert lines[2].startswith("sizes are assumed")
    assert len(fit_engines(gpus(4, 81559), replace(known(), assumed=False), REPORT).lines) == 1


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
