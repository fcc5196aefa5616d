"""A Ray cluster on this machine: real `raylet`s that stand for machines, to join and to kill."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE_BYTES = 80 * 1024 * 1024
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Raylets on the loopback address: this machine's own may not be one to listen on.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Real machines take half a minute to be missed; a test has better things to do.
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


class LocalCluster:
    """A head without CPUs, and nodes."""

    def __init__(self) -> None:
        """Start the head."""
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - only where Ray is

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES},
        )

    @property
    def address(self) -> str:
        """What `RAY_ADDRESS` names."""
        return str(self._cluster.address)

    def join(self, *, cpus: int = 2, gpus: int = 0) -> Any:
        """Add a node; return its handle."""
        return self._cluster.add_node(num_cpus=cpus, num_gpus=gpus, object_store_memory=STORE_BYTES)

    def kill(self, node: Any) -> None:
        """Kill a node as a power cut does."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End everything."""
        self._cluster.shutdown()


@contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """Have a cluster, and `RAY_ADDRESS` name it."""
    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "RAY_ADDRESS")}
    os.environ.update(ENVIRONMENT)
    os.environ.pop("RAY_ADDRESS", None)
    cluster = LocalCluster()
    try:
        os.environ["RAY_ADDRESS"] = cluster.address
        yield cluster
    finally:
        cluster.close()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def groups_left(address: str) -> list[str]:
    """Return the placement groups of a cluster that are not removed, asked by a driver of its own."""
    import ray  # noqa: PLC0415 - only where Ray is

    ray.init(address=address, log_to_driver=False, logging_level=40)
    try:
        deadline = time.monotonic() + 10
        while True:
            table = ray.util.placement_group_table()
            left = [name for name, one in table.items() if one["state"] != "REMOVED"]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.2)
    finally:
        ray.shutdown()
