"""What has to hold before a machine becomes a node, and what Ray is started with. No Ray is needed here."""

import ipaddress
import json
from pathlib import Path

import pytest

from runner.cluster.addresses import local_addresses, public_of
from runner.cluster.joining import check_same, exposure, own_address, with_port
from runner.cluster.nodes import HEAD_RESOURCE, Node, NodeFacts, as_label, facts_here, nodes_of
from runner.cluster.start import NodeSettings, arguments, environment
from runner.cluster.token import find_token, is_disabled, make_token
from runner.errors import UserError

FACTS = NodeFacts(
    recount="0.1.0", python="3.10.12", ray="2.56.1", vllm="0.19.1", fingerprint="ab", policy="cd"
)


def node(facts: NodeFacts | None, *, address: str = "10.0.0.1", head: bool = True) -> Node:
    return Node("0" * 8, address, head, {}, facts)


def row(**changes: object) -> dict[str, object]:
    return {
        "NodeID": "ab",
        "NodeManagerAddress": "10.0.0.2",
        "Alive": True,
        "Resources": {"CPU": 8.0, "GPU": 2.0, "sandbox": 16.0},
        "Labels": {"ray.io/node-id": "ab"} | FACTS.labels(),
    } | changes


# What a node says of itself.


def test_what_a_node_says_of_itself_comes_back_from_its_labels() -> None:
    assert NodeFacts.of_labels(FACTS.labels()) == FACTS


def test_a_node_that_was_joined_by_hand_says_nothing_of_itself() -> None:
    assert NodeFacts.of_labels({"ray.io/node-id": "ab", "who": "me"}) is None


def test_a_hash_fits_into_a_label_and_stays_apart_from_another() -> None:
    one, other = as_label("a" * 64), as_label("a" * 59 + "b" * 5)
    assert one is not None
    assert len(one) <= 63
    assert one != other


def test_a_version_with_a_build_fits_into_a_label() -> None:
    assert as_label("2.10.0+cpu") == "2.10.0_cpu"
    assert as_label(" ") is None


def test_the_dead_are_no_nodes_and_the_head_is_known() -> None:
    table = [
        row(),
        row(NodeID="cd", Alive=False),
        row(NodeID="ef", NodeManagerAddress="10.0.0.1", Resources={HEAD_RESOURCE: 1.0}),
    ]
    first, second = nodes_of(table)
    assert (first.address, first.is_head, first.has_broker, first.gpus) == ("10.0.0.1", True, False, 0.0)
    assert (second.slots, second.gpus, second.has_broker, second.facts) == (16, 2.0, True, FACTS)


# Versions.


def test_the_same_versions_may_join() -> None:
    check_same(FACTS, [node(FACTS)])


def test_other_versions_are_refused_with_every_difference() -> None:
    there = NodeFacts(recount="0.2.0", python="3.10.12", ray="2.56.1", vllm="0.19.0", fingerprint="ab")
    with pytest.raises(UserError) as caught:
        check_same(FACTS, [node(there)])
    assert caught.value.message.splitlines() == [
        "this machine differs from the cluster's node 10.0.0.1:",
        "  Recount: here 0.1.0, there 0.2.0",
        "  vLLM: here 0.19.1, there 0.19.0",
    ]


def test_another_sandbox_image_is_refused_also_where_the_head_has_no_broker() -> None:
    head = node(NodeFacts(recount="0.1.0"))
    worker = node(NodeFacts(recount="0.1.0", fingerprint="ef"), address="10.0.0.3", head=False)
    with pytest.raises(UserError, match=r"10\.0\.0\.3(.|\n)*the sandbox image's contents: here ab, there ef"):
        check_same(FACTS, [worker, head])


def test_a_node_without_a_broker_or_without_vllm_is_no_difference() -> None:
    check_same(FACTS, [node(NodeFacts(recount="0.1.0", ray="2.56.1"))])
    check_same(NodeFacts(recount="0.1.0"), [node(FACTS)])


def test_a_cluster_that_was_started_by_hand_can_be_joined() -> None:
    check_same(FACTS, [node(None)])


def test_this_machine_knows_its_versions() -> None:
    here = facts_here({"image_contents_sha256": "ab" * 32, "policy_sha256": "cd" * 32})
    assert here.recount
    assert here.python
    assert here.fingerprint == ("ab" * 32)[:60]


# Addresses.


def test_a_head_without_a_port_has_rays_own() -> None:
    assert with_port("10.0.0.1") == "10.0.0.1:6379"
    assert with_port("head.local:7000") == "head.local:7000"
    assert with_port("fd00::1") == "[fd00::1]:6379"
    with pytest.raises(UserError):
        with_port("ray://10.0.0.1:10001")


def test_every_address_at_once_is_not_this_machines() -> None:
    for wrong in ("0.0.0.0", "::", "head", "10.0.0.0/8"):
        with pytest.raises(UserError, match="no address of one machine"):
            own_address(wrong, None)


def test_a_head_that_names_no_address_listens_for_this_machine_alone() -> None:
    assert own_address(None, None) == "127.0.0.1"


def test_a_nodes_own_address_is_the_one_that_faces_the_head() -> None:
    assert own_address(None, "127.0.0.1:6379") == "127.0.0.1"


PRIVATE = [
    ipaddress.ip_address(one) for one in ("127.0.0.1", "10.1.2.3", "192.168.1.2", "100.64.0.9", "fd00::1")
]
PUBLIC = [ipaddress.ip_address("8.8.8.8"), ipaddress.ip_address("2001:4860:4860::8888")]


def test_private_shared_and_loopback_addresses_are_not_public() -> None:
    assert public_of([*PRIVATE, *PUBLIC]) == PUBLIC
    assert exposure("10.1.2.3", PRIVATE, allowed=False) == []


def test_a_machine_with_a_public_address_is_refused_unless_a_firewall_is_vouched_for() -> None:
    with pytest.raises(UserError, match=r"8\.8\.8\.8") as caught:
        exposure("10.1.2.3", [*PRIVATE, *PUBLIC], allowed=False)
    assert "--firewalled" in (caught.value.remedy or "")
    assert "8.8.8.8" in exposure("10.1.2.3", [*PRIVATE, *PUBLIC], allowed=True)[0]


def test_a_node_on_the_loopback_address_is_exposed_nowhere() -> None:
    assert exposure("127.0.0.1", [*PRIVATE, *PUBLIC], allowed=False) == []


def test_addresses_are_those_that_the_kernel_lists(tmp_path: Path) -> None:
    (tmp_path / "fib_trie").write_text(
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.5\n        /32 host LOCAL\n"
        "     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
    )
    (tmp_path / "if_inet6").write_text("fd000000000000000000000000000001 02 40 00 80 eth0\n")
    assert [str(one) for one in local_addresses(tmp_path)] == ["10.0.0.5", "127.0.0.1", "fd00::1"]


# The token.


def test_the_token_is_looked_for_where_ray_looks(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    file.chmod(0o600)
    home = {"HOME": str(tmp_path)}
    assert find_token(home) is None
    assert find_token(home | {"RAY_AUTH_TOKEN_PATH": str(file)}) is not None
    told = find_token(home | {"RAY_AUTH_TOKEN_PATH": str(file), "RAY_AUTH_TOKEN": "secret"})
    assert told is not None
    assert told.where == "RAY_AUTH_TOKEN"


def test_a_token_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    found = find_token({"RAY_AUTH_TOKEN_PATH": str(file)})
    assert found is not None
    assert "chmod 600" in found.warning


def test_a_token_file_that_is_named_and_not_there_or_empty_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name in ("missing", "empty"):
        with pytest.raises(UserError):
            find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / name)})


def test_a_new_token_is_its_owners_alone_and_found_afterwards(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    made = make_token(home)
    path = Path(made.where)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text()) >= 32
    assert find_token(home) == made
    with pytest.raises(UserError):
        make_token(home)  # one that is there is never written over


def test_going_without_a_token_is_a_choice_and_not_a_default() -> None:
    assert not is_disabled({})
    assert is_disabled({"RAY_AUTH_MODE": "disabled"})


# What Ray is started with.


def settings(**changes: object) -> NodeSettings:
    given: dict[str, object] = {
        "address": "10.0.0.2",
        "head": "10.0.0.1:6379",
        "port": 6379,
        "facts": FACTS,
        "broker": Path("/run/recount/broker.sock"),
        "slots": 16,
        "uses_token": True,
    }
    return NodeSettings(**(given | changes))  # type: ignore[arg-type]


def test_a_node_offers_its_slots_and_says_its_versions() -> None:
    words = arguments(settings(), lambda _: 4000)
    assert "--address=10.0.0.1:6379" in words
    assert "--node-ip-address=10.0.0.2" in words
    given = next(word for word in words if word.startswith("--resources="))
    assert json.loads(given.removeprefix("--resources=")) == {"sandbox": 16}
    assert "recount-vllm=0.19.1" in next(word for word in words if word.startswith("--labels="))


def test_a_head_serves_no_dashboard_and_no_metrics() -> None:
    words = arguments(settings(head=None), lambda _: 4000)
    assert {"--head", "--port=6379", "--include-dashboard=false", "--no-monitor"} <= set(words)
    assert not any(word.startswith("--address") for word in words)


def test_a_node_without_a_broker_offers_no_sandboxes() -> None:
    given = settings(broker=None, slots=0)
    assert not any(word.startswith("--resources") for word in arguments(given, lambda _: 4000))
    assert "RECOUNT_BROKER" not in environment(given, {"RECOUNT_BROKER": "/elsewhere", "PATH": "/bin"})


def test_rays_processes_ask_for_the_token_and_know_their_broker() -> None:
    made = environment(settings(), {"PATH": "/bin", "RAY_ADDRESS": "10.0.0.9:1", "RAY_AUTH_TOKEN": "secret"})
    assert made["RAY_AUTH_MODE"] == "token"
    assert made["RECOUNT_BROKER"] == "/run/recount/broker.sock"
    assert "RAY_ADDRESS" not in made
