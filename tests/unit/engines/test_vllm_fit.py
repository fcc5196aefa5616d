"""Fitting engines to GPUs: a table of machines, and what is said where nothing fits."""

from dataclasses import replace

import pytest
from support.gpus import ADA, AMPERE, HOPPER, MIB, REPORT, TURING, gpus, known

from runner.engines.vllm.fit import EngineFit, fit_engines
from runner.engines.vllm.gpu import Gpu
from runner.engines.vllm.settings import engines_a_gpu
from runner.errors import UserError


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


def test_what_is_shown_before_a_start_is_engines_differences_and_notes() -> None:
    lines = fit_engines(gpus(1, 24564, ADA), known(), REPORT).lines

    assert lines[0].startswith("1 engine of 1 GPU")
    assert lines[1].startswith("unlike the report: engines 1, not 8")
    assert lines[2].startswith("sizes are assumed")
    assert len(fit_engines(gpus(4, 81559), replace(known(), assumed=False), REPORT).lines) == 1
