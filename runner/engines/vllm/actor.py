"""One vLLM engine, as it runs in a Ray actor. Nothing here is called in the driver.

vLLM is imported where it is used: this module has to be importable wherever its class is named.
"""

import asyncio
import os
import platform
import sys
from pathlib import Path

from runner.engines.base import GenerationTiming
from runner.engines.reports import ReplicaStats
from runner.engines.vllm.gpu import gpu_usage, visible_gpus
from runner.engines.vllm.log_tail import log_file
from runner.engines.vllm.metering import Meter, stat_logger
from runner.engines.vllm.wire import (
    Device,
    EngineConfig,
    EngineFacts,
    Failure,
    FailureKind,
    Foreign,
    Generated,
    GenerationCall,
    Placement,
    describe_error,
    unpack_tokens,
)

DEATH_POLL_S = 0.1
"""How soon a dead engine core is noticed; vLLM keeps a thread on it that raises a flag."""
_TOO_LONG_PHRASES = ("maximum model length", "maximum context length", "maximum input length")
_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_COLOR": "0",
    # An engine's processes are all on one node; some nodes' own address is not one they can listen on.
    "VLLM_HOST_IP": "127.0.0.1",
    # The model is a directory by now; nothing of a run depends on the network.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


class EngineActor:
    """An AsyncLLM that can be started, asked, watched and started again."""

    def __init__(self, config: EngineConfig) -> None:
        """Send all output of this process and its children to the log, before anything of vLLM is read."""
        _write_to(log_file(config.log_path))
        os.environ.update(_ENVIRONMENT)
        if config.device is Device.CPU:
            os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(config.cpu_kv_cache_gib)
            # Bound threads of two engines would share the same cores and leave others idle.
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            os.environ["OMP_NUM_THREADS"] = str(config.cpu_threads)
        self._config = config
        self._engine: Foreign = None
        self._meter = Meter()

    async def place(self) -> Placement:
        """Tell where this actor runs; answers as soon as Ray has placed it."""
        import ray  # noqa: PLC0415 - only where Ray is

        context = ray.get_runtime_context()
        return Placement(
            node=context.get_node_id(),
            pid=os.getpid(),
            gpu_ids=tuple(str(one) for one in context.get_accelerator_ids().get("GPU", [])),
        )

    async def start(self) -> EngineFacts | Failure:
        """Make the engine, after shutting down what is left of another.

        It blocks this actor's event loop on purpose: the engine core's life hangs on the thread that made it
        (`plugin.py`), and there is nothing else to answer before it is up.
        """
        self._shut_down()
        self._meter = Meter()
        try:
            from vllm.usage.usage_lib import UsageContext  # noqa: PLC0415 - only where vLLM is
            from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

            self._engine = AsyncLLM.from_engine_args(
                self._arguments(),
                # How many tokens a step takes depends on who asks: as vLLM's `LLM` has it, for throughput.
                usage_context=UsageContext.LLM_CLASS,
                stat_loggers=[stat_logger(self._meter)],
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver says it, beside the log
            return Failure(FailureKind.ENGINE, describe_error(error))
        return self._facts()

    def _arguments(self) -> Foreign:
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - only where vLLM is

        config = self._config
        return AsyncEngineArgs(
            model=config.model,
            dtype=config.dtype,
            max_model_len=config.context_tokens,
            max_num_seqs=config.max_num_seqs,
            seed=config.seed,
            tensor_parallel_size=1,
            enforce_eager=config.enforce_eager,
            enable_prefix_caching=config.prefix_caching,
            gpu_memory_utilization=config.gpu_memory_utilization,
            gdn_prefill_backend=config.gdn_prefill_backend,
            # Ours alone: vLLM's own would log every few seconds and open a Prometheus registry.
            disable_log_stats=True,
            enable_log_requests=False,
        )

    def _facts(self) -> EngineFacts:
        import ray  # noqa: PLC0415 - only in an actor
        import torch  # noqa: PLC0415
        import transformers  # noqa: PLC0415
        import vllm  # noqa: PLC0415

        gpus = visible_gpus() if self._config.device is Device.CUDA else ()
        cache = self._engine.vllm_config.cache_config
        blocks, block_tokens = cache.num_gpu_blocks, cache.block_size
        return EngineFacts(
            python=platform.python_version(),
            torch=torch.__version__,
            vllm=vllm.__version__,
            transformers=transformers.__version__,
            ray=ray.__version__,
            device_name=gpus[0].name if gpus else self._config.device.value,
            kv_cache_tokens=blocks * block_tokens if blocks and block_tokens else None,
        )

    async def generate(self, call: GenerationCall) -> Generated | Failure:
        """Generate one turn. Cancelling this call, as Ray can from the driver, frees its place."""
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415 - only where vLLM is

        if self._engine is None:
            return Failure(FailureKind.ENGINE, "the engine is not started")
        tokens = unpack_tokens(call.tokens)
        limit = self._config.context_tokens
        if len(tokens) >= limit:
            return Failure(
                FailureKind.PROMPT_TOO_LONG, f"{len(tokens)} tokens leave no room in a context of {limit}"
            )
        try:
            return await self._generate(call, tokens)
        except EngineDeadError:
            return Failure(FailureKind.ENGINE, _how_dead(self._engine))
        except ValueError as error:
            # vLLM raises it for what it finds wrong with a request, before any work is done.
            too_long = any(phrase in str(error) for phrase in _TOO_LONG_PHRASES)
            kind = FailureKind.PROMPT_TOO_LONG if too_long else FailureKind.REFUSED
            return Failure(kind, describe_error(error))
        except Exception as error:  # noqa: BLE001 - any other says that the engine is not well
            return Failure(FailureKind.ENGINE, describe_error(error.__cause__ or error))

    async def _generate(self, call: GenerationCall, tokens: list[int]) -> Generated:
        """Ask the engine.

        A stop string is cut off the text, but its tokens were generated and stay counted: that is what vLLM
        itself reports as usage, and what the context holds at that moment.
        """
        from vllm import SamplingParams, TokensPrompt  # noqa: PLC0415 - only where vLLM is
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        sampling = call.sampling
        parameters = SamplingParams(
            n=1,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=0.0,
            repetition_penalty=sampling.repetition_penalty,
            seed=call.seed,
            stop=list(call.stop),
            max_tokens=call.max_tokens,
            include_stop_str_in_output=False,
            skip_special_tokens=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        final: Foreign = None
        async for output in self._engine.generate(
            TokensPrompt(prompt_token_ids=tokens), parameters, call.request_id
        ):
            final = output
        if final is None or not final.outputs:
            raise RuntimeError("the engine ended a request without an output")
        completion = final.outputs[0]
        return Generated(
            text=completion.text,
            prompt_tokens=len(tokens),
            completion_tokens=len(completion.token_ids),
            finish_reason=str(completion.finish_reason),
            cached_tokens=final.num_cached_tokens if self._config.prefix_caching else None,
            timing=_timing(final.metrics),
        )

    async def wait_dead(self) -> str:
        """Return why, once the engine is gone."""
        engine = self._engine
        if engine is None:
            return "the engine is not started"
        while engine is self._engine and not engine.errored:  # noqa: ASYNC110 - vLLM has a flag, no event
            await asyncio.sleep(DEATH_POLL_S)
        if engine is not self._engine:
            return "the engine was shut down"
        return _how_dead(engine)

    async def stats(self) -> ReplicaStats | Failure:
        """Tell how the engine is used."""
        if self._engine is None or self._engine.errored:
            return Failure(FailureKind.ENGINE, "the engine is gone")
        usage = await asyncio.to_thread(gpu_usage) if self._config.device is Device.CUDA else None
        unfinished = self._engine.output_processor.get_num_unfinished_requests()
        return self._meter.read(usage, unfinished=unfinished, caches_prefixes=self._config.prefix_caching)

    async def stop(self) -> None:
        """Shut the engine down, the core included."""
        self._shut_down()

    def _shut_down(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()


def _write_to(path: Path) -> None:
    """Append standard output and error to a file, for children too: they inherit the descriptors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _timing(metrics: Foreign) -> GenerationTiming:
    """Read where the time went; an engine core's clock, in seconds. 0 is an event that did not happen."""
    queued, scheduled, first, last = (
        getattr(metrics, name, 0.0)
        for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    )
    return GenerationTiming(
        queue_s=scheduled - queued if queued and scheduled else None,
        prefill_s=first - scheduled if scheduled and first else None,
        decode_s=last - first if first and last else None,
    )


def _how_dead(engine: Foreign) -> str:
    """Word the core's death, with its exit code where this vLLM keeps it where 0.19 does."""
    resources = getattr(getattr(engine, "engine_core", None), "resources", None)
    manager = getattr(resources, "engine_manager", None)
    codes = {} if manager is None else manager.finished_procs()
    return "the engine core is gone" + "".join(f" (exit code {code})" for code in codes.values())
