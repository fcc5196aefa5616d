"""Placement groups: what a cluster keeps for engines, a group of one bundle for each berth.

A group holds the GPU between two lives of an engine, goes with its node, and costs nobody else anything when
it is removed. One group for all engines would have to be made anew whenever a node comes. Ray itself removes
the groups of a driver that is gone.
"""

from collections import Counter

import anyio

from runner.cluster.placement import Berth
from runner.engines.replica import ReplicaStartError
from runner.engines.vllm.ray_runtime import RayRuntime
from runner.engines.vllm.wire import Foreign

GROUP_TIMEOUT_S = 60.0
REMOVE_TIMEOUT_S = 2.0
_NODE_LABEL = "ray.io/node-id"


class Groups:
    """The groups of one run, by berth."""

    def __init__(self, runtime: RayRuntime) -> None:
        """There are none."""
        self._runtime = runtime
        self._groups: dict[Berth, Foreign] = {}
        self._old: list[Foreign] = []
        self._locks: dict[Berth, anyio.Lock] = {}

    def of_nodes(self) -> Counter[str]:
        """Return how many groups there are on each node, by Ray's id."""
        return Counter(one.node for one in self._groups)

    async def hold(self, berth: Berth, bundle: dict[str, float], node_name: str) -> Foreign:
        """Return a berth's group, reserved; made where there is none. Raises `ReplicaStartError`."""
        async with self._locks.setdefault(berth, anyio.Lock()):  # two engines of a berth make one group
            if berth not in self._groups:
                self._groups[berth] = await self._make(berth, bundle, node_name)
            return self._groups[berth]

    async def _make(self, berth: Berth, bundle: dict[str, float], node_name: str) -> Foreign:
        ray = self._runtime.ray

        def make() -> Foreign:
            return ray.util.placement_group(
                [bundle], strategy="STRICT_PACK", bundle_label_selector=[{_NODE_LABEL: berth.node}]
            )

        group = await self._runtime.call(make)
        try:
            with anyio.fail_after(GROUP_TIMEOUT_S):
                await group.ready()
        except BaseException as error:
            self._old.append(group)
            if isinstance(error, TimeoutError | ray.exceptions.RayError):
                raise ReplicaStartError(
                    f"the cluster reserved no place on {node_name} within {GROUP_TIMEOUT_S:.0f} s",
                    remedy="see whether somebody else holds its GPUs",
                ) from error
            raise
        return group

    def drop(self, berth: Berth) -> None:
        """Nobody stands in a berth any more."""
        group = self._groups.pop(berth, None)
        self._old += [] if group is None else [group]

    def lose(self, node: str) -> None:
        """A node is gone."""
        for berth in [one for one in self._groups if one.node == node]:
            self.drop(berth)

    async def sweep(self) -> None:
        """Remove the groups that were dropped."""
        old, self._old = self._old, []
        remove = self._runtime.ray.util.remove_placement_group

        def remove_all() -> None:
            for one in old:
                remove(one)

        if old:
            await self._runtime.call(remove_all)

    async def close(self) -> None:
        """Remove all groups; bounded."""
        self._old += self._groups.values()
        self._groups.clear()
        with anyio.move_on_after(REMOVE_TIMEOUT_S, shield=True):
            await self.sweep()
