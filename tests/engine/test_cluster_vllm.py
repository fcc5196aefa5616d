"""Real vLLM engines on two nodes of a real Ray cluster, and one of the nodes lost under work."""

from pathlib import Path

import anyio
import pytest
from clusters import groups_left, local_cluster
from test_vllm_engines import CONTEXT_TOKENS, ask

from runner.artifacts.progress import SilentListener
from runner.engines.base import Completion
from runner.engines.reports import ReplicaDown, ReplicaReport, ReplicaState, ReplicaUp
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("default"),  # other people's imports warn
]

TURNS = 12
TOLD_S = 120.0
"""People are told by the cluster's head, which waits before it says so; turns, by their engine."""


class Notes(SilentListener):
    """Keeps what a person is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


async def test_engines_serve_on_the_nodes_that_have_room_and_what_a_lost_node_was_at_is_done_by_the_other(
    small_model: Path, tmp_path: Path
) -> None:
    settings = VllmSettings(
        model=str(small_model),
        context_tokens=CONTEXT_TOKENS,
        device=Device.CPU,
        engines=3,
        dtype="float32",
        max_num_seqs=4,
        start_timeout_s=900.0,
        generation_timeout_s=300.0,
    )
    notes, reports = Notes(), list[ReplicaReport]()
    done: list[Completion] = []
    with local_cluster() as cluster:
        first, _ = cluster.join(cpus=1), cluster.join(cpus=1)
        engine = VllmEngine(settings, log_dir=tmp_path / "logs")
        engine.show_nodes_to(notes)
        async with engine:
            engine.report_to(reports.append)
            nodes = {one.node for one in reports if isinstance(one, ReplicaUp)}
            identity = engine.identity()
            assert len(nodes) == 2
            assert identity["nodes"] == {"engines": dict.fromkeys(sorted(map(str, nodes)), 1), "refused": {}}
            assert [one.state for one in (await engine.snapshot()).replicas].count(ReplicaState.WAITING) == 1

            async def one(number: int) -> None:
                done.append(await ask(engine, number=number, max_tokens=40))

            async with anyio.create_task_group() as tasks:
                for number in range(TURNS):
                    tasks.start_soon(one, number)
                await anyio.sleep(1)
                await anyio.to_thread.run_sync(cluster.kill, first)
            (lost,) = (report for report in reports if isinstance(report, ReplicaDown))
            with anyio.fail_after(TOLD_S):
                while "is gone" not in notes.lines[-1]:  # noqa: ASYNC110 - only they tell
                    await anyio.sleep(0.1)

        assert len(done) == TURNS
        assert lost.name in {"engine0", "engine1"}
        assert notes.lines[0].startswith("2 of 3 engines have a place in the cluster")
        assert await anyio.to_thread.run_sync(groups_left, cluster.address) == []
