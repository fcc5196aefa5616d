"""Ray as this run uses it: one of its own on this machine, or the cluster that `RAY_ADDRESS` names.

Ray ties the processes that it starts to the *thread* that started it, so that none outlives the driver; and
it takes signal handlers where it is imported in the main thread. So it is imported, started and stopped in
one thread of its own, which lives until Ray has stopped.
"""

import asyncio
import importlib
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import anyio

from runner.engines.base import EngineUnavailableError
from runner.engines.vllm.wire import Foreign
from runner.errors import UserError

ADDRESS_VARIABLE = "RAY_ADDRESS"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 4.0
OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Prompts and completions are all that passes through it, and most are small enough to pass beside it."""
_LONGEST_TEMP_DIR = 22
"""A Unix socket's address takes 107 bytes, and our and Ray's part of it take 85."""
_TEMP_PREFIX = "rc"
_CLIENT_SCHEME = "ray://"
"""A driver behind it is no part of the cluster: each answer would go through one more process."""
_OWN_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Nothing but this machine talks to this Ray, so it listens on the loopback address alone.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray's own 15 would let the commands of sandboxes take the processor from an engine.
    "RAY_worker_niceness": "0",
    # Ray would kill engines where the machine's memory is nearly full, whoever fills it.
    "RAY_memory_monitor_refresh_ms": "0",
}
_CLUSTER_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would end this process a minute after the head was lost; a run ends itself, sooner and in order.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}

T = TypeVar("T")


class RayRuntime:
    """Starts Ray, or connects to a cluster, and stops what it started."""

    def __init__(self, *, gpus: int | None = None) -> None:
        """`gpus` is what an own Ray offers; None lets it count."""
        self._gpus = gpus
        self._thread: ThreadPoolExecutor | None = None
        self._ray: ModuleType | None = None
        self._temp_dir: Path | None = None
        self.name = f"{_namespace()}-{secrets.token_hex(2)}"
        """Tells apart what runs leave on the nodes of a cluster."""
        self.own_node: str | None = None
        """Ray's id of the node that the driver is on, once it is connected to a cluster."""

    @property
    def ray(self) -> Foreign:
        """The module, of a Ray that runs."""
        if self._ray is None:
            raise EngineUnavailableError("Ray is not started")
        return self._ray

    @property
    def is_own(self) -> bool:
        """Say whether this Ray is this run's alone."""
        return _cluster() is None

    async def start(self) -> None:
        """Start or connect. Raises `UserError` for a cluster that is not there."""
        if self._ray is not None:
            return
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
        try:
            with anyio.fail_after(START_TIMEOUT_S):
                self._ray = await self.call(self._init)
        except BaseException as error:
            # Whoever did not get in does not leave; and the thread may be held by a head that says nothing.
            with anyio.CancelScope(shield=True):
                await self.stop()
            if isinstance(error, TimeoutError):
                raise EngineUnavailableError(f"Ray did not start within {START_TIMEOUT_S:.0f} s") from error
            raise
        _take_back_signals()

    async def call(self, function: Callable[..., T], *args: Foreign, **kwargs: Foreign) -> T:
        """Run something that blocks in Ray's thread."""
        if self._thread is None:
            raise EngineUnavailableError("Ray is not started")
        work = self._thread.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(work)

    async def stop(self) -> None:
        """Stop it, or leave the cluster, also where it was still starting. May be called again."""
        thread, self._thread = self._thread, None
        self._ray = None
        if thread is None:
            return
        # Behind whatever the thread is at, and to its end also where nobody waits for that.
        stopped = thread.submit(self._shut_down)
        thread.shutdown(wait=False)
        with anyio.move_on_after(STOP_TIMEOUT_S) as waiting:
            # Shielded, since to stop waiting would take it back as long as it has not begun.
            await asyncio.shield(asyncio.wrap_future(stopped))
        if waiting.cancelled_caught and not self.is_own:
            _Connection.hangs = True

    def _init(self) -> ModuleType:
        address = _cluster()
        for name, value in (_OWN_ENVIRONMENT if address is None else _CLUSTER_ENVIRONMENT).items():
            os.environ.setdefault(name, value)  # read when Ray is imported
        logging.getLogger("ray").setLevel(logging.ERROR)
        ray = importlib.import_module("ray")
        common = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
        if address is not None:
            if address.startswith(_CLIENT_SCHEME):
                raise UserError(
                    f"{ADDRESS_VARIABLE}={address} names Ray's client server; a run has to be on a node",
                    remedy=f"run on a node of the cluster, with {ADDRESS_VARIABLE}=HEAD:6379",
                )
            try:
                _connect(ray, address, **common)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UserError(
                    f"no Ray cluster at {address}: {error}",
                    remedy=f"start it, or unset {ADDRESS_VARIABLE} for a Ray of this run's own",
                ) from error
            self.own_node = ray.get_runtime_context().get_node_id()
            return ray
        _sweep(_temp_root())
        self._temp_dir = Path(tempfile.mkdtemp(prefix=f"{_TEMP_PREFIX}-{os.getpid()}-", dir=_temp_root()))
        ray.init(
            address="local",
            namespace=_namespace(),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            num_gpus=self._gpus,
            _temp_dir=str(self._temp_dir),
            **common,
        )
        return ray

    def _shut_down(self) -> None:
        ray = sys.modules.get("ray")
        if ray is not None and ray.is_initialized() and _disconnects():
            ray.shutdown()
        if self._temp_dir is not None:
            shutil.rmtree(self._temp_dir, ignore_errors=True)
            self._temp_dir = None


def _connect(ray: Foreign, address: str, **options: Foreign) -> None:
    """Connect to a cluster, or share the connection: sandboxes and engines each have a runtime."""
    if _Connection.holders == 0 or not ray.is_initialized():
        ray.init(address=address, namespace=_namespace(), **options)
        # Ray prints what happens to nodes, in the middle of a display; a run tells it in its own words.
        worker: Foreign = importlib.import_module("ray._private.worker")
        worker.print_to_stdstream = _print_nothing
        _Connection.holders = 0
    _Connection.holders += 1


def _disconnects() -> bool:
    """Say whether this was the last holder of a connection to a cluster, or the owner of an own Ray."""
    _Connection.holders = max(_Connection.holders - 1, 0)
    return _Connection.holders == 0


class _Connection:
    """Ray has one connection a process. Changed in the threads of runtimes, which start and stop in turn."""

    holders = 0
    hangs = False
    """The cluster did not let go of this process in time."""


def leave_if_ray_hangs(code: int) -> None:
    """End this process at once where a lost cluster holds on to it; everything of ours is done by then.

    Ray waits for its head in threads that the interpreter would wait for, ten minutes and longer. Nothing is
    left behind: of a cluster's processes a driver owns none.
    """
    if _Connection.hangs:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _print_nothing(*_: object, **__: object) -> None:
    """Stand in for Ray's printing of messages from nodes."""


def _take_back_signals() -> None:
    """Install Python's handler for SIGTERM again.

    Ray's C++ puts one of its own in its place, which prints a stack trace, calls Python's, and aborts the
    process three seconds later, whatever it is tidying up.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only there can Python's be set, and whoever runs a loop elsewhere handles no signals
    handler = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)
    signal.siginterrupt(signal.SIGTERM, False)


def _cluster() -> str | None:
    """Return the address of the cluster to use; `local` is Ray's own word for none."""
    address = os.environ.get(ADDRESS_VARIABLE)
    return None if address in {None, "", "local"} else address


def _namespace() -> str:
    return f"recount-{os.getpid()}"


def _temp_root() -> str:
    wanted = tempfile.gettempdir()
    return wanted if len(wanted) <= _LONGEST_TEMP_DIR else "/tmp"  # noqa: S108 - it holds a fresh directory


def _sweep(root: str) -> None:
    """Remove what killed runs left behind; whose a directory was stands in its name."""
    for path in Path(root).glob(f"{_TEMP_PREFIX}-*-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)
