"""Which engine stands on which node: packed where engines share a GPU, spread over nodes, never moved."""

import random
from collections import Counter

import pytest

from runner.cluster.nodes import Node
from runner.cluster.placement import Berth, Room, Share, capacity, node_names, place

HALF, WHOLE, CPU = Share(0.5), Share(1.0), Share(0.0)


def names(count: int) -> list[str]:
    return [f"engine{index}" for index in range(count)]


def per_node(found: dict[str, Berth]) -> dict[str, int]:
    return dict(sorted(Counter(one.node for one in found.values()).items()))


def test_engines_that_share_a_gpu_are_on_one_and_the_gpus_on_as_many_nodes_as_there_are() -> None:
    found = place(names(8), [Room("a", 2), Room("b", 2)], HALF)

    assert per_node(found) == {"a": 4, "b": 4}
    assert set(Counter(found.values()).values()) == {2}


def test_no_more_gpus_are_taken_than_the_engines_need() -> None:
    found = place(names(4), [Room("a", 8), Room("b", 8), Room("c", 8)], HALF)

    assert len(set(found.values())) == 2
    assert per_node(found) == {"a": 2, "b": 2}


@pytest.mark.parametrize("share", [WHOLE, CPU])
def test_engines_that_share_nothing_are_spread_evenly(share: Share) -> None:
    found = place(names(9), [Room("a", 8), Room("b", 4), Room("c", 8)], share)

    assert per_node(found) == {"a": 3, "b": 3, "c": 3}
    assert len(set(found.values())) == 9


def test_a_small_node_is_filled_and_the_rest_go_to_the_large_one() -> None:
    assert per_node(place(names(8), [Room("a", 1), Room("b", 8)], WHOLE)) == {"a": 1, "b": 7}


def test_what_finds_no_place_waits_and_what_stands_stays_when_a_node_joins() -> None:
    rooms = [Room("a", 1), Room("b", 1)]
    first = place(names(6), rooms, HALF)
    assert sorted(first) == names(4)

    then = place(["engine4", "engine5"], [*rooms, Room("c", 4)], HALF, first)

    assert per_node(then) == {"c": 2}
    assert len(set(then.values())) == 1


def test_an_engine_comes_back_into_the_half_of_a_gpu_that_it_left() -> None:
    rooms = [Room("a", 2), Room("b", 2)]
    taken = place(names(8), rooms, HALF)
    left = taken.pop("engine3")

    assert place(["engine3"], rooms, HALF, taken) == {"engine3": left}


def test_the_engines_of_a_lost_node_go_to_what_is_left_as_far_as_it_has_room() -> None:
    taken = place(names(6), [Room("a", 3), Room("b", 4)], WHOLE)
    lost = [name for name, berth in taken.items() if berth.node == "a"]
    for name in lost:
        del taken[name]

    found = place(lost, [Room("b", 4)], WHOLE, taken)

    assert len(lost) == 3
    assert per_node(found) == {"b": 1}


def test_a_node_that_shrank_below_what_stands_there_gets_no_more() -> None:
    taken = place(names(4), [Room("a", 4)], WHOLE)

    assert place(["more"], [Room("a", 2)], WHOLE, taken) == {}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_no_berth_is_overfull_and_nodes_differ_by_one_berth_at_most(
    seed: int,
) -> None:
    draw = random.Random(seed)  # noqa: S311 - a test's load
    share = draw.choice([HALF, WHOLE, Share(1 / 3), CPU])
    rooms = [Room(f"n{index}", 8) for index in range(draw.randint(1, 6))]
    wanted = draw.randint(1, capacity(rooms, share))

    found = place(names(wanted), rooms, share)

    assert len(found) == wanted
    assert max(Counter(found.values()).values()) <= share.engines_a_berth
    berths = Counter(one.node for one in set(found.values()))
    each = [berths[one.node] for one in rooms]
    assert max(each) - min(each) <= 1


def test_a_share_reads_berths_off_resources() -> None:
    resources = {"GPU": 4.0, "CPU": 30.0}

    assert (HALF.berths_of(resources), HALF.engines_a_berth) == (4, 2)
    assert (CPU.berths_of(resources), CPU.engines_a_berth) == (30, 1)
    assert Share(0.0, berths_a_node=2).berths_of(resources) == 2
    assert HALF.berths_of({"CPU": 8.0}) == 0


def test_placing_on_a_thousand_nodes_is_quick_and_even() -> None:
    rooms = [Room(f"n{index:04}", 8) for index in range(1000)]
    found = place(names(2000), rooms, HALF)

    assert set(per_node(found).values()) == {2}


def test_nodes_are_called_by_their_address_and_told_apart_where_several_have_one() -> None:
    nodes = [
        Node(node_id, address, is_head=False, resources={}, facts=None)
        for node_id, address in (("aaaaaaaa", "10.0.0.1"), ("bbbbbbbb", "10.0.0.2"), ("cccccccc", "10.0.0.2"))
    ]

    assert list(node_names(nodes).values()) == ["10.0.0.1", "10.0.0.2#bbbbbb", "10.0.0.2#cccccc"]
