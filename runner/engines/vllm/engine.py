"""vLLM engines under Ray: what is checked before any starts, and what they are.

How turns are spread over them, and what happens when one is lost, is the pool's (`runner/engines/pool.py`).
"""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from typing_extensions import override

from runner.artifacts.progress import FetchListener, SilentListener
from runner.cluster.checkpoints import describe_checkpoint
from runner.cluster.placement import Share
from runner.engines.base import EngineUnavailableError, Prompt
from runner.engines.dispatch import Dispatcher
from runner.engines.pool import EnginePool, RestartPolicy
from runner.engines.vllm.admission import Admission
from runner.engines.vllm.berths import Berths
from runner.engines.vllm.checkpoint import (
    Checkpoint,
    check_checkpoint,
    find_checkpoint,
    is_hub_id,
    read_config,
)
from runner.engines.vllm.fit import EngineFit, fit_engines
from runner.engines.vllm.gpu import visible_gpus
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.renderer import ChatRenderer
from runner.engines.vllm.replica import ReplicaSettings, StartLocks, VllmReplica
from runner.engines.vllm.report import deviations_of
from runner.engines.vllm.settings import VllmSettings, engines_a_gpu, gpus_needed
from runner.engines.vllm.sizes import measure
from runner.engines.vllm.wire import Device, EngineConfig, EngineFacts
from runner.errors import UserError
from runner.protocol.prompt import Message

NEEDED_PACKAGES = ("vllm", "ray", "transformers")


class VllmEngine(EnginePool):
    """Serves a checkpoint with vLLM engines in Ray actors."""

    def __init__(
        self,
        settings: VllmSettings,
        *,
        fit: EngineFit | None = None,
        fixed: Collection[str] | None = None,
        checkpoint: Checkpoint | None = None,
        log_dir: Path | None = None,
    ) -> None:
        """Nothing is started or read. Without `log_dir` engines write into a temporary directory.

        `fit` takes the place of the settings that were fitted to this machine; `fixed` says that they are to
        be fitted to a cluster, but for those that it names. `checkpoint` is where the settings' model was
        fetched to, looked for otherwise.
        """
        settings = settings if fit is None else fit.applied(settings)
        self.fit = fit
        self._settings = settings
        self._log_dir = log_dir
        self._own_log_dir: Path | None = None
        self._runtime = RayRuntime(gpus=0 if settings.device is Device.CPU else None)
        self._renderer: ChatRenderer | None = None
        self._checkpoint = checkpoint
        self._fixed = fixed
        self._locks = StartLocks()
        self._berths: Berths | None = None
        self._listener: FetchListener = SilentListener()
        self._replicas: list[VllmReplica] = []
        super().__init__(
            (),
            dispatcher=Dispatcher((), prefix_caching=settings.prefix_caching),
            policy=RestartPolicy(starts=settings.starts, generation_timeout_s=settings.generation_timeout_s),
        )
        if self._runtime.is_own:
            self._add_replicas(settings.engines)

    @property
    @override
    def planned(self) -> tuple[str, ...]:
        return () if self.fit is None else tuple(self.fit.lines)

    @override
    def show_nodes_to(self, listener: FetchListener) -> None:
        """Tell `listener` how far nodes of a cluster are with their checkpoints, and which are refused."""
        self._listener = listener

    def _add_replicas(self, up_to: int) -> None:
        """Have so many; the pool starts them, now or when it does."""
        settings = self._settings
        placing = ReplicaSettings(
            gpu_fraction=0.0 if settings.device is Device.CPU else settings.gpu_fraction,
            start_timeout_s=settings.start_timeout_s,
        )
        while (index := len(self._replicas)) < up_to:
            one = VllmReplica(
                f"engine{index}",
                self._located(_engine_config(settings, index), f"engine{index}"),
                placing,
                runtime=self._runtime,
                locks=self._locks,
                berths=self._berths,
            )
            self._replicas.append(one)
            self.add(one)

    def _located(self, config: EngineConfig, name: str) -> EngineConfig:
        """Return an engine's settings with where its files are, as far as that is known."""
        log_dir = self._log_dir or self._own_log_dir
        directory = None if self._checkpoint is None else self._checkpoint.directory
        return replace(
            config,
            model=config.model if directory is None else str(directory.absolute()),
            log_path="" if log_dir is None else str(log_dir.absolute() / f"{name}.log"),
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
        for one in self._replicas:
            one.config = self._located(one.config, one.name)
        await self._runtime.start()
        if not self._runtime.is_own:
            await self._spread(directory)

    async def _spread(self, directory: Path) -> None:
        """Place the engines over a cluster: nodes are asked, engines fitted to those that may serve."""
        commit = None if self._checkpoint is None else self._checkpoint.commit
        repository = self._settings.model if is_hub_id(self._settings.model) else None
        wanted = await describe_checkpoint(directory, commit=commit, repository=repository)
        admission = Admission(self._runtime, wanted, self._listener)
        self._berths = berths = Berths(
            self._runtime, admission, share_of(self._settings), tell=self._listener.note
        )
        await berths.open()
        if self._fixed is not None and self._settings.device is Device.CUDA and berths.gpus:
            size = await run_sync(
                lambda: measure(self._settings.model, directory, dtype=self._settings.dtype)
            )
            if size is not None:
                self.fit = fit_engines(berths.gpus, size, self._settings, self._fixed)
                self._settings = self.fit.applied(self._settings)
                admission.least_gpu_bytes = min(one.memory_bytes for one in berths.gpus)
                berths.share = share_of(self._settings)
        self._add_replicas(berths.capacity() if self._grows else self._settings.engines)
        berths.place([one.name for one in self._replicas])
        placed = sum(one.has_place for one in self._replicas)
        if placed == 0:
            raise no_place(self._settings, berths.refused)
        if placed < len(self._replicas):
            self._listener.note(
                f"{placed} of {len(self._replicas)} engines have a place in the cluster;"
                " the others start when a node joins that has room"
            )

    @property
    def _grows(self) -> bool:
        """Whether there are as many engines as the cluster has room for, and more with every node."""
        return self._fixed is not None and "engines" not in self._fixed

    @override
    async def tend(self) -> None:
        if self._berths is None:
            return
        berths = self._berths

        def grow() -> None:
            if self._grows:
                self._add_replicas(berths.capacity())

        await berths.follow(grow)

    @override
    async def release(self) -> None:
        if self._berths is not None:
            await self._berths.close()
        await self._runtime.stop()
        # On a cluster some may never have had a place to start in.
        tried = [one for one in self._replicas if one.facts is None and (one.has_place or one.node)]
        if self._own_log_dir is not None and not tried:
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
            **self._where(),
        }

    def _where(self) -> dict[str, object]:
        """Say which nodes the engines stood on when the run began, and which may hold none."""
        berths = self._berths
        if berths is None:
            return {}
        return {"engines": len(self._replicas), "nodes": {"engines": berths.nodes, "refused": berths.refused}}

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


def share_of(settings: VllmSettings) -> Share:
    """Return what an engine takes of a node."""
    return Share(0.0 if settings.device is Device.CPU else settings.gpu_fraction)


def no_place(settings: VllmSettings, refused: Mapping[str, str]) -> UserError:
    """Return the error of a cluster in which no engine may stand, every refused node with its reason."""
    needs = "GPU" if settings.device is Device.CUDA else "CPU"
    reasons = "".join(f"\n  {name}: {why}" for name, why in refused.items())
    return UserError(
        f"no node of the Ray cluster has a free {needs} and may hold an engine{reasons}",
        remedy="mend what is named, or join nodes that have one"
        if refused
        else f"see `ray status`: join nodes with {needs}s, or unset RAY_ADDRESS",
    )


def check_packages() -> None:
    """Raise `UserError` unless vLLM and what it needs can be imported."""
    missing = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"this environment has no {' and no '.join(missing)}, and the profile serves its model itself",
            remedy="docker compose up eval, or pip install '.[gpu]' where Recount's source is;"
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
