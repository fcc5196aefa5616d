"""Small parts of the vLLM engine: packing, metering, GPUs, logs, deviations, prerequisites."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.engines.vllm import engine as engine_module
from runner.engines.vllm.engine import check_gpus, check_packages
from runner.engines.vllm.gpu import Gpu, GpuUsage, gpu_usage, visible_gpus
from runner.engines.vllm.log_tail import last_lines, user_error_of
from runner.engines.vllm.metering import Meter
from runner.engines.vllm.report import deviations_of
from runner.engines.vllm.settings import VllmSettings, engines_a_gpu, gpus_needed
from runner.engines.vllm.wire import Device, EngineConfig, EngineFacts, pack_tokens, unpack_tokens
from runner.errors import UserError

CONFIG = EngineConfig(
    model="m",
    device=Device.CUDA,
    dtype="bfloat16",
    context_tokens=131072,
    max_num_seqs=64,
    seed=1,
    log_path="",
    gdn_prefill_backend="triton",
)
FACTS = EngineFacts(
    python="3.10.12",
    torch="2.10.0+cu128",
    vllm="0.19.1",
    transformers="4.57.6",
    ray="2.56.1",
    device_name="GPU",
    kv_cache_tokens=1,
)
SETTINGS = VllmSettings(model="m", context_tokens=4096)


def test_tokens_come_back_as_they_went() -> None:
    assert unpack_tokens(pack_tokens((0, 1, 151_935, 2_000_000))) == [0, 1, 151_935, 2_000_000]
    assert unpack_tokens(pack_tokens(())) == []


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────


def scheduled(**changes: Any) -> SimpleNamespace:
    cache = SimpleNamespace(queries=changes.pop("queries", 0), hits=changes.pop("hits", 0))
    return SimpleNamespace(
        **{"num_running_reqs": 0, "kv_cache_usage": 0.0, "prefix_cache_stats": cache} | changes
    )


def test_totals_are_summed_up_and_states_are_the_last() -> None:
    meter = Meter()
    for tokens in (3, 4):
        meter.scheduled(scheduled(num_running_reqs=tokens, kv_cache_usage=0.1 * tokens, queries=10, hits=5))
        meter.stepped(
            SimpleNamespace(num_prompt_tokens=100, num_generation_tokens=tokens, num_preempted_reqs=1)
        )
    told = meter.read(GpuUsage(0.5, 10, 20), unfinished=6, caches_prefixes=True)

    assert (told.running, told.waiting, told.kv_cache_usage) == (4, 2, 0.4)
    assert (told.prompt_tokens, told.generation_tokens, told.preemptions) == (200, 7, 2)
    assert (told.prefix_cache_queries, told.prefix_cache_hits) == (20, 10)
    assert (told.gpu_utilization, told.gpu_memory_used_bytes, told.gpu_memory_total_bytes) == (0.5, 10, 20)


def test_an_engine_whose_last_turn_ended_at_a_stop_string_is_idle() -> None:
    meter = Meter()
    meter.scheduled(scheduled(num_running_reqs=1, kv_cache_usage=0.3))
    told = meter.read(None, unfinished=0, caches_prefixes=False)

    assert (told.running, told.waiting, told.kv_cache_usage) == (0, 0, 0.0)
    assert told.prefix_cache_hits is None
    assert told.gpu_utilization is None


# ── GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────


class FakeNvml(ModuleType):
    """Two GPUs; the second tells no utilization."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.driver = driver
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802 - the library's names
        if not self.driver:
            raise self.NVMLError
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index > 1:
            raise self.NVMLError
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != "GPU-b":
            raise self.NVMLError
        return 1

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return f"card{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=80 + handle, used=7)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if handle == 1:
            raise self.NVMLError
        return SimpleNamespace(gpu=25)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["card0", "card1"]),
        ("1,0", ["card1", "card0"]),
        ("GPU-b", ["card1"]),
        ("0,9,1", ["card0"]),  # as CUDA reads it
        ("", []),
        ("-1", []),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_sees(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert [one.name for one in visible_gpus()] == names
    assert nvml.open == 0


def test_the_usage_is_the_first_visible_gpu_s(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_usage() == GpuUsage(0.25, 7, 80)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu_usage() == GpuUsage(None, 7, 81)
    assert visible_gpus() == (Gpu("card1", 81),)


def test_without_driver_or_bindings_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (FakeNvml(driver=False), None):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert visible_gpus() == ()
        assert gpu_usage() is None


# ── prerequisites ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("engines", "fraction", "needed"), [(8, 0.5, 4), (1, 1.0, 1), (3, 0.5, 2), (3, 1 / 3, 1), (2, 0.6, 2)]
)
def test_engines_share_gpus_as_ray_places_them(engines: int, fraction: float, needed: int) -> None:
    assert gpus_needed(replace(SETTINGS, engines=engines, gpu_fraction=fraction)) == needed
    assert gpus_needed(replace(SETTINGS, engines=engines, device=Device.CPU)) == 0
    assert engines_a_gpu(fraction) >= 1


def test_no_gpu_is_told_with_what_else_there_is() -> None:
    with pytest.raises(UserError, match=r"no GPU here, .*need 1\n.*docker compose up eval.*--engine openai"):
        check_gpus(SETTINGS, 0, "here")
    check_gpus(SETTINGS, 1, "here")
    check_gpus(replace(SETTINGS, device=Device.CPU), 0, "here")


def test_too_few_gpus_are_told_with_how_many_engines_they_take() -> None:
    published = replace(SETTINGS, engines=8, gpu_fraction=0.5)

    with pytest.raises(
        UserError, match=r"8 engines of 0\.5 GPU each need 4 GPUs, here are 3\n.*--engines 6:"
    ):
        check_gpus(published, 3, "here")


def test_an_environment_without_vllm_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "NEEDED_PACKAGES", ("no_such_package", "json"))

    with pytest.raises(UserError, match=r"no no_such_package, .*\n.*\[gpu\].*--engine openai"):
        check_packages()


# ── logs ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_lines_of_a_log_are_kept_without_blank_ones(tmp_path: Path) -> None:
    log = tmp_path / "engine0.log"
    log.write_bytes(b"".join(b"line %d\n\n" % number for number in range(20_000)) + b"\xff torn")

    assert last_lines(log, 3) == "line 19998\nline 19999\n\N{REPLACEMENT CHARACTER} torn"
    assert "No such file" in last_lines(tmp_path / "gone")
    (tmp_path / "empty").touch()
    assert last_lines(tmp_path / "empty") == "(empty)"


def test_memory_and_context_that_do_not_suffice_are_the_user_s_to_mend() -> None:
    memory = user_error_of(
        "x\nValueError: No available memory for the cache blocks. Try\ny", "RuntimeError: see"
    )
    context = user_error_of(
        "", "ValueError: User-specified max_model_len (9) is greater than the derived max_model_len"
    )

    assert memory is not None
    assert "No available memory" in memory.message
    assert "gpu_memory_utilization" in (memory.remedy or "")
    assert context is not None
    assert "context_tokens" in (context.remedy or "")
    assert user_error_of("segmentation fault", "RuntimeError: died") is None


# ── deviations ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_published_engine_deviates_in_nothing() -> None:
    assert deviations_of(CONFIG, [FACTS, FACTS], "qwen3_next") == ()


@pytest.mark.parametrize(
    ("config", "facts", "told"),
    [
        ({}, {"vllm": "0.20.0"}, "vllm is 0.20.0, the report's is 0.19.1"),
        ({}, {"vllm": "0.19.10"}, "vllm is 0.19.10"),
        ({}, {"torch": "2.10.1"}, "torch is 2.10.1"),
        ({}, {"python": "3.11.4"}, "python is 3.11.4"),
        ({"device": Device.CPU}, {}, "on a CPU"),
        ({"dtype": "float16"}, {}, "compute in float16"),
        ({"prefix_caching": True}, {}, "cache prefixes"),
        ({"enforce_eager": False}, {}, "compile the model"),
        ({"gdn_prefill_backend": "flashinfer"}, {}, "GDN prefill is flashinfer"),
        ({"gdn_prefill_backend": None}, {}, "GDN prefill is vLLM’s choice"),
    ],
)
def test_each_difference_is_one_sentence(config: dict[str, Any], facts: dict[str, Any], told: str) -> None:
    found = deviations_of(replace(CONFIG, **config), [FACTS, replace(FACTS, **facts)], "qwen3_next")

    assert len(found) == 1
    assert told in found[0]


def test_what_a_model_does_not_have_is_no_deviation() -> None:
    assert deviations_of(replace(CONFIG, gdn_prefill_backend=None), [FACTS], "qwen2") == ()
