"""Ray is started, used and stopped in one thread, over a Ray that is a stand-in."""

import ctypes
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from runner.engines.base import EngineUnavailableError
from runner.engines.vllm import engine as engine_module
from runner.engines.vllm import ray_runtime
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device
from runner.errors import ExitCode, UserError

pytestmark = pytest.mark.anyio

SIG_IGN = 1


class FakeRay(ModuleType):
    """Remembers how it was started and in which threads."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.started: dict[str, Any] | None = None
        self.threads: list[threading.Thread] = []
        self.error: Exception | None = None
        self.slow = threading.Event()
        self.slow.set()
        self.takes_sigterm = False
        self.temp_dir_at_stop = False
        self.stopped = threading.Event()

    def init(self, **options: Any) -> None:
        self.threads.append(threading.current_thread())
        self.slow.wait(10)
        if self.error is not None:
            raise self.error
        self.started = options
        if self.takes_sigterm:
            ctypes.CDLL(None).signal(signal.SIGTERM, SIG_IGN)

    def is_initialized(self) -> bool:
        return self.started is not None

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_node_id=lambda: "own")

    def shutdown(self) -> None:
        self.threads.append(threading.current_thread())
        self.temp_dir_at_stop = self.started is not None and Path(self.started["_temp_dir"]).is_dir()
        self.started = None
        self.stopped.set()


def raise_stopped() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray._private.worker", ModuleType("ray._private.worker"))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("RAY_ADDRESS", None)
    yield fake
    fake.slow.set()


@pytest.mark.parametrize("address", [None, "", "local"])
async def test_an_own_ray_is_local_quiet_and_gone_with_its_directory(
    ray: FakeRay, address: str | None
) -> None:
    if address is not None:
        os.environ["RAY_ADDRESS"] = address
    runtime = RayRuntime(gpus=0)
    await runtime.start()
    await runtime.start()

    assert ray.started is not None
    options = dict(ray.started)
    assert (options["address"], options["include_dashboard"], options["log_to_driver"]) == (
        "local",
        False,
        False,
    )
    assert options["num_gpus"] == 0
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["RAY_worker_niceness"] == "0"  # noqa: SIM112 - Ray's own spelling
    assert await runtime.call(threading.current_thread) is ray.threads[0]
    await runtime.stop()
    await runtime.stop()

    assert ray.started is None
    assert ray.threads[0] is ray.threads[1] is not threading.current_thread()
    assert ray.temp_dir_at_stop
    assert not os.path.exists(options["_temp_dir"])  # noqa: ASYNC240, PTH110 - a moment
    with pytest.raises(EngineUnavailableError, match="not started"):
        await runtime.call(len, "")


async def test_a_cluster_is_joined_and_nothing_of_it_is_set(ray: FakeRay) -> None:
    os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"
    runtime = RayRuntime(gpus=4)
    await runtime.start()

    assert runtime.own_node == "own"
    assert ray.started is not None
    assert ray.started["address"] == "10.0.0.1:6379"
    assert not {"num_gpus", "object_store_memory", "_temp_dir", "include_dashboard"} & set(ray.started)
    ray.started = None


async def test_a_cluster_that_is_not_there_is_the_user_s_to_mend(ray: FakeRay) -> None:
    os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"
    ray.error = ConnectionError("nobody listens")
    runtime = RayRuntime()

    with pytest.raises(
        UserError, match=r"no Ray cluster at 10\.0\.0\.1:6379: nobody listens\n.*unset RAY_ADDRESS"
    ):
        await runtime.start()
    await runtime.stop()


async def test_ray_s_client_server_is_refused_with_the_address_to_take(ray: FakeRay) -> None:
    os.environ["RAY_ADDRESS"] = "ray://head:10001"
    runtime = RayRuntime()

    with pytest.raises(UserError, match=r"client server.*\n.*RAY_ADDRESS=HEAD:6379"):
        await runtime.start()
    await runtime.stop()
    assert ray.threads == []


async def test_a_cluster_whose_head_says_nothing_does_not_keep_a_stopped_start(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_runtime, "STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(ray_runtime._Connection, "hangs", False)
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"
    ray.slow.clear()
    with anyio.fail_after(5), anyio.move_on_after(0.05):
        await RayRuntime().start()

    # An error of the command line's: a process that ended in order would wait for the thread.
    main_module = importlib.import_module("runner.cli.main")
    monkeypatch.setattr(main_module, "app", lambda **_: raise_stopped())
    with pytest.raises(SystemExit):
        main_module.main()
    assert left == [ExitCode.INTERRUPTED]
    ray.error = ConnectionError("nobody listens")


async def test_a_start_that_is_stopped_half_way_is_undone_when_it_ends(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_runtime, "STOP_TIMEOUT_S", 0.05)
    ray.slow.clear()
    runtime = RayRuntime()
    with anyio.move_on_after(0.05):
        await runtime.start()
    with anyio.move_on_after(0.05):
        await runtime.stop()
    ray.slow.set()

    with anyio.fail_after(5):
        await run_sync(ray.stopped.wait)
    assert ray.started is None


async def test_sigterm_is_ours_again_after_ray_took_it(ray: FakeRay) -> None:
    ray.takes_sigterm = True
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    runtime = RayRuntime()
    try:
        await runtime.start()
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep(0.05)
    finally:
        await runtime.stop()
        signal.signal(signal.SIGTERM, before)

    assert heard == [signal.SIGTERM]


async def test_nothing_is_started_for_a_checkpoint_that_is_not_there(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "NEEDED_PACKAGES", ())
    settings = VllmSettings(model=str(tmp_path / "gone"), context_tokens=100, device=Device.CPU)

    with pytest.raises(UserError, match="no checkpoint at"):
        async with VllmEngine(settings):
            pass
    assert ray.threads == []


async def test_nothing_is_read_where_there_is_no_gpu(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "NEEDED_PACKAGES", ())
    monkeypatch.setattr(engine_module, "visible_gpus", lambda: ())

    with pytest.raises(UserError, match="no GPU here"):
        async with VllmEngine(VllmSettings(model=str(tmp_path / "gone"), context_tokens=100)):
            pass
    assert ray.threads == []


async def test_what_a_killed_run_left_is_swept_up_and_others_are_not(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_runtime, "_temp_root", lambda: str(tmp_path))
    for name in ("rc-4194305-abc", f"rc-{os.getpid()}-abc", "rc-x-abc", "other-4194305-abc"):
        (tmp_path / name / "session").mkdir(parents=True)
    runtime = RayRuntime()
    await runtime.start()
    await runtime.stop()

    assert sorted(os.listdir(tmp_path)) == sorted(  # noqa: PTH208 - a moment
        [f"rc-{os.getpid()}-abc", "rc-x-abc", "other-4194305-abc"]
    )
