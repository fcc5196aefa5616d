"""What vLLM loads of ours into every process that it starts (entry points `vllm.general_plugins`).

Two things. A dense Qwen3Next checkpoint is one that vLLM 0.19.1 knows all layers of and refuses all the
same, for having no experts; a subclass under the same name takes it. And an engine core, which lives on when
the Ray actor in front of it is killed and would keep its GPU's memory, ends with that actor.

vLLM calls this several times and in every process, so it is cheap and may be called again.
"""

import ctypes
import functools
import importlib.util
import logging
import multiprocessing
import os
import signal
from pathlib import Path

from runner.engines.vllm.wire import Foreign

ARCHITECTURE = "Qwen3NextForCausalLM"
OURS = ("runner.engines.vllm.qwen3_next", ARCHITECTURE)
"""Module and class. vLLM caches what it learned of a class, which saves an import of vLLM in a process of its
own at every start, but only where the module's last name is one of vLLM's own."""
THEIRS = "vllm.model_executor.models.qwen3_next"
REFUSAL = "No Qwen3Next layer found in the model.layers."
"""What vLLM says of a checkpoint without experts. One that does not say so any more needs nothing of ours."""

PR_SET_PDEATHSIG = 1
ENGINE_CORE_NAME = "EngineCore"

logger = logging.getLogger("vllm.plugins.recount")
"""Below `vllm`, so that it is written where vLLM writes."""


def register() -> None:
    """Do both; vLLM's entry point."""
    end_with_the_actor()
    register_dense_qwen3next()


def end_with_the_actor() -> None:
    """In an engine core, ask the kernel for SIGKILL when the parent dies; elsewhere, nothing.

    The signal follows the thread that spawned this process, not the process: engines are made on the actor's
    event loop, whose thread lives as long as the actor.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not multiprocessing.current_process().name.startswith(ENGINE_CORE_NAME):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        _say_once(f"an engine core may outlive its actor: {os.strerror(ctypes.get_errno())}")
        return
    if os.getppid() != parent.pid:
        # It died before there was a signal to ask for.
        os.kill(os.getpid(), signal.SIGKILL)


def register_dense_qwen3next() -> None:
    """Put our class under the architecture's name, or step aside and say why."""
    from vllm import ModelRegistry  # noqa: PLC0415 - only where vLLM is

    registered = ModelRegistry.models.get(ARCHITECTURE)
    if _place_of(registered) == OURS:
        return
    reason = why_not_needed(registered)
    if reason is not None:
        _say_once(f"dense Qwen3Next is left to vLLM: {reason}")
        return
    ModelRegistry.register_model(ARCHITECTURE, ":".join(OURS))


def why_not_needed(registered: Foreign) -> str | None:
    """Return why this vLLM's class is left alone, None if it is the one that refuses dense checkpoints.

    Its source is read rather than its version compared: what matters is whether it still refuses, and
    importing it would cost seconds in every process.
    """
    if registered is None:
        return f"it has no {ARCHITECTURE}"
    module, _ = _place_of(registered)
    if module != THEIRS:
        return f"its {ARCHITECTURE} is another than expected ({module})"
    source = _source_of(THEIRS)
    if REFUSAL not in source or "def set_moe_parameters" not in source:
        return "it does not refuse checkpoints without experts"
    return None


def _place_of(registered: Foreign) -> tuple[str, str]:
    return str(getattr(registered, "module_name", "")), str(getattr(registered, "class_name", ""))


def _source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    try:
        return Path(spec.origin).read_text(encoding="utf-8")
    except OSError:
        return ""


@functools.cache
def _say_once(message: str) -> None:
    logger.warning("recount: %s", message)
