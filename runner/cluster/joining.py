"""What has to hold before a machine becomes a node: its address, its token, its broker, its versions."""

import importlib.util
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from runner.cluster.addresses import Address, local_addresses, parse, public_of, towards
from runner.cluster.look import look
from runner.cluster.nodes import Node, NodeFacts, facts_here
from runner.cluster.start import DEFAULT_PORT, NodeSettings
from runner.cluster.token import MODE_VARIABLE, TOKEN_MODE, find_token, is_disabled, make_token
from runner.errors import UserError
from sandbox import BrokerSandbox
from sandbox.unix_http import BrokenError, UnixHttp, UnreachableError
from sandbox.wire import Health

BROKER_WAIT_S = 120.0
"""For a broker that starts beside its node."""
LEASES_TIMEOUT_S = 60.0
"""For a broker to remove what runs had open on a node that leaves."""
LEASES_INTERVAL_S = 0.5
HEALTH_TIMEOUT_S = 10.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Asked:
    """What `recount node` was asked for. `head` is the head's `HOST[:PORT]`, None to be the head."""

    head: str | None
    address: str | None
    port: int
    broker: Path | None
    slots: int | None
    exposed: bool
    cpus: int | None
    gpus: int | None
    temp_dir: Path | None


@dataclass(frozen=True)
class Ready:
    """A node that may start, and what a person should know of it."""

    settings: NodeSettings
    notes: tuple[str, ...]


async def prepare(asked: Asked) -> Ready:
    """Check everything, the cheapest first; nothing is started. Raises `UserError` and `SandboxError`."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            "this environment has no Ray",
            remedy="docker compose up -d node, whose image has it;"
            " or pip install '.[gpu]' where Recount's source is",
        )
    head = None if asked.head is None else with_port(asked.head)
    address = own_address(asked.address, head)
    notes = list(exposure(address, local_addresses(), allowed=asked.exposed))
    uses_token = not is_disabled()
    if uses_token:
        token = find_token()
        if token is None and head is not None:
            raise UserError(
                "this machine has no token of the cluster",
                remedy="take the head's: RAY_AUTH_TOKEN, a file that RAY_AUTH_TOKEN_PATH names, or"
                " ~/.ray/auth_token (the head printed where its own lies)",
            )
        if token is None:
            token = make_token()
            notes.append(f"made a token: {token.where}; every other node needs the same")
        if token.warning:
            notes.append(token.warning)
    else:
        notes.append(f"{MODE_VARIABLE} is disabled: whoever reaches this node's ports can run code on it")
    facts, slots = await broker_facts(asked.broker)
    if head is not None:
        values = dict(os.environ) | ({MODE_VARIABLE: TOKEN_MODE} if uses_token else {})
        nodes = await run_sync(look, head, values)
        check_same(facts, nodes)
    if asked.broker is None:
        notes.append("no broker is named (RECOUNT_BROKER): engines can run here, sandboxes cannot")
    return Ready(
        NodeSettings(
            address=address,
            head=head,
            port=asked.port,
            facts=facts,
            broker=asked.broker,
            slots=min(slots, asked.slots or slots),
            uses_token=uses_token,
            cpus=asked.cpus,
            gpus=asked.gpus,
            temp_dir=asked.temp_dir,
        ),
        tuple(notes),
    )


def with_port(head: str) -> str:
    """Return `HOST:PORT` of a head's address, which may leave the port out."""
    if head in {"auto", "local"} or "//" in head:
        raise UserError(f"--ray-address {head} is no head's address", remedy="write HOST:PORT of the head")
    if parse(head) is not None and ":" in head:
        return f"[{head}]:{DEFAULT_PORT}"
    return head if head.rpartition(":")[2].isdigit() and ":" in head else f"{head}:{DEFAULT_PORT}"


def own_address(given: str | None, head: str | None) -> str:
    """Return the address by which the other nodes reach this one: given, or the one that faces the head."""
    if given is not None:
        found = parse(given)
        if found is None or found.is_unspecified:
            raise UserError(
                f"--node-address {given} is no address of one machine",
                remedy="name this machine's address in the network that only the nodes share",
            )
        return str(found)
    if head is None:
        return LOOPBACK
    host, _, port = head.rpartition(":")
    facing = towards(host.strip("[]"), int(port))
    if facing is None:
        raise UserError(
            f"no way to {host} from here", remedy="mend it, or name this machine's --node-address"
        )
    return str(facing)


def exposure(address: str, local: Iterable[Address], *, allowed: bool) -> list[str]:
    """Return what to say of addresses that anybody could reach; raise `UserError` unless that is allowed.

    A node that is on the loopback address listens on that alone. On every other Ray listens on all.
    """
    own = parse(address)
    if own is not None and str(own) in {LOOPBACK, "::1"}:
        return []
    public = public_of(local)
    if not public:
        return []
    shown = ", ".join(str(one) for one in public)
    if not allowed:
        raise UserError(
            f"this machine has public addresses ({shown}), and Ray's ports would be open on them",
            remedy="let a firewall close them to all but the nodes (docs/cluster.md has rules),"
            " and say so with --firewalled",
        )
    return [f"Ray's ports are open on {shown} too, unless a firewall closes them, as --firewalled says"]


async def broker_facts(broker: Path | None) -> tuple[NodeFacts, int]:
    """Ask the broker of this machine for a lease and give it back: that tries all that a run would need."""
    if broker is None:
        return facts_here(None), 0
    run_id = f"node-{secrets.token_hex(4)}"
    async with BrokerSandbox(broker, run_id, wait_s=BROKER_WAIT_S) as sandbox:
        identity, capacity = await sandbox.identity(), await sandbox.capacity()
    return facts_here(identity), capacity.workspaces_at_once or 1


def check_same(facts: NodeFacts, nodes: Iterable[Node]) -> None:
    """Raise `UserError` that names each difference to a node that is in the cluster; the head comes first."""
    for node in sorted(nodes, key=lambda one: not one.is_head):
        differences = [] if node.facts is None else facts.differences(node.facts)
        if differences:
            raise UserError(
                "\n  ".join((f"this machine differs from the cluster's node {node.address}:", *differences)),
                remedy="install the same on both; docs/cluster.md says what has to agree",
            )


async def wait_for_leases(broker: Path) -> bool:
    """Wait until nobody has a lease at the broker any more, and say whether that came in time."""
    client = UnixHttp(broker, connect_timeout_s=HEALTH_TIMEOUT_S, keep_alive_s=1.0)
    with anyio.move_on_after(LEASES_TIMEOUT_S):
        while True:
            try:
                reply = await client.request("GET", "/v1/health", b"", timeout_s=HEALTH_TIMEOUT_S)
            except (UnreachableError, BrokenError):
                return True  # it has ended, and whatever it had with it
            if Health.model_validate_json(reply.body).leases == 0:
                await client.forget_idle()
                return True
            await anyio.sleep(LEASES_INTERVAL_S)
    return False


def shown(settings: NodeSettings, environment: Mapping[str, str]) -> list[str]:
    """Return what to say of a node that started: what it is, and for a head how others come to it."""
    what = f"{settings.slots} sandboxes" if settings.slots else "no sandboxes"
    if settings.head is not None:
        return [f"node {settings.address} joined {settings.head}: {what}"]
    where = f"{settings.address}:{settings.port}"
    lines = [f"head {where} is up: {what}"]
    token = find_token(environment) if settings.uses_token else None
    if token is not None:
        lines.append(f"its token: {token.where}")
    if settings.address != LOOPBACK:
        lines.append(f"another machine joins with: recount node --ray-address {where}")
    return [*lines, f"a run uses it with: recount eval PROFILE --ray-address {where}"]
