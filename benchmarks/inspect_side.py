"""Inspect AI's side of the comparison: run by the interpreter of an environment that has inspect-ai.

Prints one line of JSON: the wall clock of the whole evaluation, and of each action as a tool sees it.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

COMPOSE = """\
services:
  default:
    image: recount-sandbox:latest
    x-local: true
    entrypoint: ["/bin/sleep", "infinity"]
    network_mode: none
    init: true
    mem_limit: 256m
    stop_grace_period: 0s
"""


def main() -> None:
    """Evaluate `trajectories` samples of a model that says nothing, each with `actions` commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=int, required=True)
    parser.add_argument("--actions", type=int, required=True)
    parser.add_argument("--at-once", type=int, required=True)
    parser.add_argument("--thinking", type=float, required=True, help="seconds before every action")
    asked = parser.parse_args()

    # Not installed where the rest of the benchmark is.
    import anyio  # noqa: PLC0415
    import inspect_ai  # noqa: PLC0415
    import inspect_ai.util._sandbox.docker.docker as provider  # noqa: PLC0415
    from inspect_ai.dataset import Sample  # noqa: PLC0415
    from inspect_ai.solver import solver  # noqa: PLC0415
    from inspect_ai.util import sandbox  # noqa: PLC0415

    async def any_version() -> None:
        """It wants engine 24 or newer; what is measured works with 20.10 as well."""

    provider.validate_prereqs = any_version
    latencies: list[float] = []

    @solver
    def act():  # noqa: ANN202 - types of a package that need not be installed
        async def solve(state, generate):  # noqa: ANN001, ANN202, ARG001
            for _ in range(asked.actions):
                await anyio.sleep(asked.thinking)
                started = time.perf_counter()
                done = await sandbox().exec(["/bin/bash", "-c", "echo hi"], timeout=20)
                latencies.append(time.perf_counter() - started)
                if done.stdout != "hi\n":
                    raise RuntimeError(f"the command printed {done.stdout!r} {done.stderr!r}")
            return state

        return solve

    with tempfile.TemporaryDirectory() as directory:
        compose = Path(directory, "compose.yaml")
        compose.write_text(COMPOSE, encoding="utf-8")
        task = inspect_ai.Task(
            dataset=[Sample(input="hi", id=index) for index in range(1, asked.trajectories + 1)],
            solver=act(),
            sandbox=("docker", str(compose)),
        )
        started = time.perf_counter()
        logs = inspect_ai.eval(
            task,
            model="mockllm/model",
            max_samples=asked.at_once,
            max_sandboxes=asked.at_once,
            log_dir=directory,
            display="none",
        )
        wall_s = time.perf_counter() - started
    if logs[0].status != "success":
        sys.exit(f"the evaluation ended as {logs[0].status}: {logs[0].error}")
    print(json.dumps({"wall_s": wall_s, "latencies_s": latencies, "version": inspect_ai.__version__}))


if __name__ == "__main__":
    main()
