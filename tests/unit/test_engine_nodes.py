"""Nodes of a cluster in state, results, report and views: what was done where, by engines that may move."""

from itertools import count
from typing import Any

import pytest
from support.engine_events import engine_down, engine_up, sample, use
from support.events import began, ended, run_started, turn
from support.live import tool, view_of

from runner.engine_log import report_event, sample_event
from runner.engines.reports import PoolSnapshot, ReplicaSnapshot, ReplicaState, ReplicaUp
from runner.events import AnyEvent, EngineUp
from runner.report.tables import node_rows
from runner.results.build import build_results
from runner.state import reduce_events
from runner.views.lines import progress_lines
from runner.views.live_state import LiveState
from runner.views.phases import Phase, PhaseState
from runner.views.screen import Size, compose
from runner.views.tables import node_table


def up(name: str, node: str | None, *, starts: int = 1, at: float = 1000.0) -> EngineUp:
    return engine_up(name, at=at, starts=starts).model_copy(update={"node": node})


def did(engine: str, numbers: "count[int]", tokens: int = 100) -> AnyEvent:
    return turn(number=next(numbers), engine=engine, completion_tokens=tokens, at=1010.0)


def moved() -> list[AnyEvent]:
    """Two engines on two nodes; the second node is lost and its engine goes on where the first is."""
    numbers = count()
    return [
        run_started(at=1000.0),
        up("a", "10.0.0.1"),
        up("b", "10.0.0.2"),
        began().model_copy(update={"at": 1001.0}),
        did("a", numbers),
        did("b", numbers, 300),
        engine_down("b", at=1011.0),
        up("b", "10.0.0.1", starts=2, at=1012.0),
        did("b", numbers, 50),
    ]


def test_turns_count_for_the_node_that_their_engine_was_on() -> None:
    state = reduce_events(moved())

    assert {
        name: (one.produced.turns, one.produced.completion_tokens, one.losses)
        for name, one in state.engines.by_node.items()
    } == {"10.0.0.1": (2, 150, 0), "10.0.0.2": (1, 300, 1)}
    assert [one.name for one in state.engines.on_node("10.0.0.1")] == ["a", "b"]
    assert state.engines.on_node("10.0.0.2") == []


def test_results_tell_each_node_s_part_and_none_on_one_machine() -> None:
    found = build_results(reduce_events([*moved(), ended().model_copy(update={"at": 1012.0})]))["engines"]

    assert found["by_engine"]["b"]["node"] == "10.0.0.1"
    assert found["by_node"]["10.0.0.2"] == {
        "engines": 0,
        "turns": 1,
        "prompt_tokens": turn().prompt_tokens,
        "completion_tokens": 300,
        "prompt_tokens_per_s": pytest.approx(turn().prompt_tokens / 12, rel=0.2),
        "completion_tokens_per_s": pytest.approx(300 / 12, rel=0.2),
        "generate_s": turn().generate_s,
        "losses": 1,
        "actions": 0,
    }
    alone = build_results(reduce_events([run_started(), engine_up("a")]))["engines"]
    assert alone["by_node"] == {}
    assert alone["by_engine"]["a"]["node"] is None


def test_a_sample_says_where_an_engine_is_and_that_it_waits() -> None:
    snapshot = PoolSnapshot(
        0, (ReplicaSnapshot("a", ReplicaState.WAITING, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, node="10.0.0.3"),)
    )
    (record,) = sample_event(snapshot).engines

    assert (record.state, record.node) == (ReplicaState.WAITING, "10.0.0.3")
    event = report_event(ReplicaUp("a", 1.0, 1, "10.0.0.3"))
    assert isinstance(event, EngineUp)
    assert event.node == "10.0.0.3"


def test_the_report_has_a_column_a_node_and_none_on_one_machine() -> None:
    names, rows = node_rows(build_results(reduce_events(moved())))

    assert names == ["10.0.0.1", "10.0.0.2"]
    assert [len(one.cells) for one in rows] == [2] * len(rows)
    assert node_rows(build_results(reduce_events([run_started(), engine_up("a")]))) == ([], [])


def commanded(numbers: "count[int]", node: str | None) -> AnyEvent:
    return turn(number=next(numbers), engine="server", tool=tool(node=node), at=1010.0)


def test_commands_count_for_the_node_whose_sandbox_ran_them_with_or_without_engines_there() -> None:
    numbers = count()
    nodes = ["10.0.0.1", "10.0.0.2", "10.0.0.2"]
    events = [run_started(at=1000.0), began(), *(commanded(numbers, node) for node in nodes)]

    found = build_results(reduce_events(events))["engines"]["by_node"]
    assert {name: (one["actions"], one["engines"]) for name, one in found.items()} == {
        "10.0.0.1": (1, 0),
        "10.0.0.2": (2, 0),
    }
    rows = text_of(node_table(view_of(live(*events), now=1015.0), 80, 10))
    assert [row.split()[-2:] for row in rows[1:]] == [["1", "0"], ["2", "0"]]
    alone = reduce_events([run_started(at=1000.0), began(), commanded(count(), None)])
    assert build_results(alone)["engines"]["by_node"] == {}


def live(*events: AnyEvent) -> LiveState:
    state = LiveState()
    for event in events:
        state.apply(event)
    return state


def text_of(rows: list[Any]) -> list[str]:
    lines = []
    for row in rows:
        line = ""
        for cell in row:
            line = line.ljust(cell.column) + cell.text
        lines.append(line)
    return lines


def test_a_frame_has_a_row_a_node_where_there_are_several() -> None:
    view = view_of(live(*moved(), sample(use("a", running=3, node="10.0.0.1"), at=1013.0)), now=1015.0)

    lines = text_of(node_table(view, 100, 10))

    assert lines[0].split() == [
        "node",
        "engines",
        "batch",
        "tokens/s",
        "turns",
        "written",
        "actions",
        "losses",
    ]
    assert lines[1].split()[:3] == ["10.0.0.1", "2", "3"]
    assert lines[2].split()[:3] == ["10.0.0.2", "0", "-"]
    assert lines[2].split()[-1] == "1"
    for size in (None, Size(100, 40)):
        assert any(line.startswith("10.0.0.2") for line in text_of(compose(view, size)))


def test_a_frame_of_one_machine_has_no_nodes() -> None:
    assert node_table(view_of(live(run_started(), engine_up("a"))), 100, 10) == []
    assert node_table(view_of(live(run_started(), up("a", "10.0.0.1"))), 100, 10) == []


def test_progress_in_lines_says_how_many_nodes_have_engines() -> None:
    lines = progress_lines(live(*moved()), PhaseState(Phase.RUNNING, 0.0), 1015.0)

    assert "nodes=1" in lines[-1].split()
    assert "nodes=" not in progress_lines(live(run_started()), PhaseState(Phase.RUNNING, 0.0), 1015.0)[-1]
