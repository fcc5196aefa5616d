"""Engines that do not come up, and what is left of engines when they or the driver end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import actors, descendants, engine_cores, still_alive, wait_gone, with_engine_core

from runner.engines.replica import ReplicaStartError
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device
from runner.errors import UserError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),  # other people's imports warn
]

SERVE_UNTIL_KILLED = """
import sys
import anyio
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device

async def main():
    async with VllmEngine(VllmSettings(model=sys.argv[1], context_tokens=256, device=Device.CPU)) as engine:
        print("serving", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def settings(model: Path, *, start_timeout_s: float = 400.0, context_tokens: int = 256) -> VllmSettings:
    return VllmSettings(
        model=str(model),
        context_tokens=context_tokens,
        device=Device.CPU,
        max_num_seqs=2,
        start_timeout_s=start_timeout_s,
    )


async def test_a_slow_start_is_given_up_in_time_with_the_log_and_leaves_nothing(
    small_model: Path, tmp_path: Path
) -> None:
    before = descendants()
    engine = VllmEngine(settings(small_model, start_timeout_s=6.0), log_dir=tmp_path)
    with pytest.raises(
        ReplicaStartError, match=r"engine0 did not come up within 6 s\nlast lines of .*engine0\.log"
    ):
        async with engine:
            pass

    left = {pid: started for pid, started in descendants().items() if pid not in before}
    assert wait_gone(left, within_s=10.0) == {}


async def test_an_engine_that_fails_says_why_in_the_words_of_its_log(
    small_model: Path, tmp_path: Path
) -> None:
    # Weights that are whole, but another model's.
    model = tmp_path / "model"
    shutil.copytree(small_model, model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] += 1
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")

    with pytest.raises(ReplicaStartError, match=r"(?s)engine0 did not come up: .*were not initialized from"):
        async with VllmEngine(settings(model), log_dir=tmp_path):
            pass


async def test_a_context_longer_than_the_checkpoint_s_is_the_user_s_to_mend(
    small_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"(?s)max_model_len.*remedy: lower limits\.context_tokens"):
        async with VllmEngine(settings(small_model, context_tokens=10_000_000), log_dir=tmp_path):
            pass


def test_a_killed_driver_takes_its_engines_along(small_model: Path, tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", SERVE_UNTIL_KILLED, str(small_model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "serving\n"
        family = with_engine_core(driver.pid)
        assert len(engine_cores(family)) == 1, still_alive(family)
        time.sleep(12)  # longer than a worker thread idles
        assert len(engine_cores(still_alive(family))) == 1
        serving = {pid: family[pid] for pid in (*engine_cores(family), *actors(family))}
        driver.kill()
        assert wait_gone(serving, within_s=10.0) == {}
        # Ray's two agents, small and without a GPU, first try for a minute to tell somebody that it died.
        left = wait_gone(family, within_s=10.0)
        assert [name for name in left.values() if not name.endswith("Agent")] == []
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    finally:
        driver.kill()
        driver.wait()
