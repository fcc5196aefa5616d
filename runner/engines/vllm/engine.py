"""vLLM engines under Ray: what is checked before any starts, and what they are.

How turns are spread over them, and what happens when one is lost, is the pool's (`runner/engines/pool.py`).
"""

import importlib.util
import os
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync
from typing_extensions import override

from runner.engines.base import EngineUnavailableError, Prompt
from runner.engines.dispatch import Dispatcher
from runner.engines.pool import EnginePool, RestartPolicy
from runner.engines.vllm.checkpoint import Checkpoint, check_checkpoint, find_checkpoint, read_config
from runner.engines.vllm.fit import EngineFit
from runner.engines.vllm.gpu import visible_gpus
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.renderer import ChatRenderer
from runner.engines.vllm.replica import ReplicaSettings, StartLocks, VllmReplica
from runner.engines.vllm.report import deviations_of
from runner.engines.vllm.settings import VllmSettings, engines_a_gpu, gpus_needed
from runner.engines.vllm.wire import Device, EngineConfig, EngineFacts
from runner.errors import UserError
from runner.protocol.prompt import Message

NEEDED_PACKAGES = ("vllm", "ray", "transformers")
CLUSTER_ANSWER_TIMEOUT_S = 30.0


class VllmEngine(EnginePool):
    """Serves a checkpoint with vLLM engines in Ray actors."""

    def __init__(
        self,
        settings: VllmSettings,
        *,
        fit: EngineFit | None = None,
        checkpoint: Checkpoint | None = None,
        log_dir: Path | None = None,
    ) -> None:
        """Nothing is started or read. Without `log_dir` engines write into a temporary directory.

        `fit` takes the place of the settings that were fitted to this machine; `checkpoint` is where the
        settings' model was fetched to, looked for otherwise.
        """
        settings = settings if fit is None else fit.applied(settings)
        self.fit = fit
        self._settings = settings
        self._log_dir = log_dir
        self._own_log_dir: Path | None = None
        self._runtime = RayRuntime(gpus=0 if settings.device is Device.CPU else None)
        self._renderer: ChatRenderer | None = None
        self._checkpoint = checkpoint
        locks = StartLocks()
        placing = ReplicaSettings(
            gpu_fraction=0.0 if settings.device is Device.CPU else settings.gpu_fraction,
            start_timeout_s=settings.start_timeout_s,
        )
        self._replicas = tuple(
            VllmReplica(
                f"engine{index}", _engine_config(settings, index), placing, runtime=self._runtime, locks=locks
            )
            for index in range(settings.engines)
        )
        super().__init__(
            self._replicas,
            dispatcher=Dispatcher(
                [one.slots for one in self._replicas], prefix_caching=settings.prefix_caching
            ),
            policy=RestartPolicy(starts=settings.starts, generation_timeout_s=settings.generation_timeout_s),
        )

    @override
    async def prepare(self) -> None:
        """Check everything that can be checked, cheapest first, then start Ray."""
        check_packages()
        if self._runtime.is_own:
            check_gpus(self._settings, await run_sync(lambda: len(visible_gpus())), "here")
        if self._checkpoint is None:
            self._checkpoint = await find_checkpoint(self._settings.model, self._settings.revision)
        else:
            await run_sync(check_checkpoint, self._checkpoint.directory)
        directory = self._checkpoint.directory.absolute()
        self._renderer = await ChatRenderer.load(directory)
        if self._log_dir is None:
            self._own_log_dir = Path(tempfile.mkdtemp(prefix="recount-engines-"))
        log_dir = self._log_dir or self._own_log_dir or Path()
        for one in self._replicas:
            path = log_dir.absolute() / f"{one.name}.log"
            one.config = replace(one.config, model=str(directory), log_path=str(path))
        await self._runtime.start()
        if not self._runtime.is_own:
            try:
                with anyio.fail_after(CLUSTER_ANSWER_TIMEOUT_S):
                    resources = await self._runtime.call(self._runtime.ray.cluster_resources)
            except TimeoutError as error:
                raise EngineUnavailableError(
                    f"the Ray cluster did not say what it has within {CLUSTER_ANSWER_TIMEOUT_S:g} s",
                    remedy="see whether its head node lives, or unset RAY_ADDRESS",
                ) from error
            check_gpus(self._settings, int(resources.get("GPU", 0)), "in the Ray cluster")

    @override
    async def release(self) -> None:
        await self._runtime.stop()
        came_up = all(one.facts is not None for one in self._replicas)
        if self._own_log_dir is not None and came_up:
            # The log of an engine that did not come up is named in its error, so it stays.
            shutil.rmtree(self._own_log_dir, ignore_errors=True)
            self._own_log_dir = None

    @override
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        if self._renderer is None:
            raise EngineUnavailableError("the engine was not started")
        return await self._renderer.render(messages)

    @property
    def _facts(self) -> list[EngineFacts]:
        return [one.facts for one in self._replicas if one.facts is not None]

    @override
    def identity(self) -> dict[str, object]:
        settings: dict[str, Any] = asdict(self._settings)
        del settings["seed"]
        facts = self._facts
        return {
            "kind": "vllm",
            **settings,
            "device": self._settings.device.value,
            "commit": None if self._checkpoint is None else self._checkpoint.commit,
            "engine_seeds": [one.config.seed for one in self._replicas],
            "versions": {
                name: sorted({getattr(one, name) for one in facts})
                for name in ("python", "torch", "vllm", "transformers", "ray")
            },
            "devices": [one.device_name for one in facts],
            "kv_cache_tokens": [one.kv_cache_tokens for one in facts],
            "fit": None
            if self.fit is None
            else {"engines": self.fit.line, "differs": list(self.fit.differs)},
        }

    @override
    def deviations(self) -> tuple[str, ...]:
        found = self._checkpoint
        model_type = "" if found is None else str(read_config(found.directory).get("model_type"))
        return deviations_of(_engine_config(self._settings, 0), self._facts, model_type)


def _engine_config(settings: VllmSettings, index: int) -> EngineConfig:
    return EngineConfig(
        model=settings.model,
        device=settings.device,
        dtype=settings.dtype,
        context_tokens=settings.context_tokens,
        max_num_seqs=settings.max_num_seqs,
        seed=settings.seed + index,
        log_path="",
        enforce_eager=settings.enforce_eager,
        prefix_caching=settings.prefix_caching,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        gdn_prefill_backend=settings.gdn_prefill_backend,
        cpu_threads=max(1, len(os.sched_getaffinity(0)) // settings.engines),
        cpu_kv_cache_gib=settings.cpu_kv_cache_gib,
    )


def check_packages() -> None:
    """Raise `UserError` unless vLLM and what it needs can be imported."""
    missing = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"this environment has no {' and no '.join(missing)}, and the profile serves its model itself",
            remedy="docker compose up eval, or pip install 'recount[gpu]';"
            " or name a server with --engine openai --model NAME --base-url URL",
        )


def check_gpus(settings: VllmSettings, found: int, where: str) -> None:
    """Raise `UserError` where there are fewer GPUs than the engines need."""
    needed = gpus_needed(settings)
    if needed == 0 or found >= needed:
        return
    if found == 0:
        raise UserError(
            f"no GPU {where}, and the profile's engines need {needed}",
            remedy="run where there are GPUs (in a container: docker compose up eval gives it them),"
            " take the profile cpu, or name a server with --engine openai",
        )
    most = found * engines_a_gpu(settings.gpu_fraction)
    raise UserError(
        f"{settings.engines} engines of {settings.gpu_fraction:g} GPU each need {needed} GPUs, {where}"
        f" {'is' if found == 1 else 'are'} {found}",
        remedy=f"--engines {most}: it takes longer and changes no result",
    )
