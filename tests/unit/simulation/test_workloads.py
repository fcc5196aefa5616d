"""Workloads: read, generated, and unrolled to what an engine meets."""

import math
from pathlib import Path
from statistics import fmean, median, pstdev

import pytest
from support.builders import write_lines
from support.workloads import trajectory, workload

from runner.engines.dispatch import CostModel
from runner.errors import ExitCode, UserError
from runner.simulation.bounds import alone_s, longest_alone_s, throughput_s
from runner.simulation.workload import ANSWER_TEXT, Workload

LAW = CostModel()
GOOD = {"prompt_tokens": 700, "turns": [{"output_tokens": 5}]}


def test_each_turn_s_prompt_is_all_that_came_before_it() -> None:
    turns = workload(trajectory(10, 20, 30, prompt_tokens=700, observation_tokens=5)).unrolled[0]

    assert [one.prompt_tokens for one in turns] == [700, 715, 740]
    assert [one.seen_tokens for one in turns] == [0, 710, 735]


def test_all_turns_but_the_last_run_their_tool() -> None:
    turns = workload(trajectory(10, 20, tool_s=0.5)).unrolled[0]

    assert '"sleep 0.5"' in turns[0].text
    assert turns[1].text == ANSWER_TEXT
    assert [one.tool_s for one in turns] == [0.5, 0.0]


def test_behind_the_last_turn_there_is_none() -> None:
    load = workload(trajectory(10, 20))

    assert load.turn("0", 1) is not None
    assert load.turn("0", 2) is None


def test_a_file_is_read_line_by_line_and_may_hold_more_than_is_needed(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "w.jsonl",
        [
            {"trajectory": 0, **GOOD},
            {
                "prompt_tokens": 9,
                "turns": [
                    {"output_tokens": 3, "tool_s": 0.25, "observation_tokens": 4},
                    {"output_tokens": 2},
                ],
            },
        ],
    )

    load = Workload.read(path)

    assert [len(turns) for turns in load.unrolled] == [1, 2]
    assert load.most_turns == 2
    assert load.unrolled[1][1].prompt_tokens == 16


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"turns": [{"output_tokens": 5}]}, "prompt_tokens: Field required"),
        ({**GOOD, "turns": []}, "turns: Tuple should have at least 1 item"),
        ({**GOOD, "turns": [{"output_tokens": 0}]}, "turns.0.output_tokens: Input should be greater"),
        ({**GOOD, "turns": [{"output_tokens": 5, "tool_s": -1}]}, "turns.0.tool_s: Input should be greater"),
        ({**GOOD, "prompt_tokens": "many"}, "prompt_tokens: Input should be a valid integer"),
        ([1], "line: Input should be a valid dictionary"),
    ],
)
def test_a_line_that_is_no_trajectory_is_named(tmp_path: Path, line: object, said: str) -> None:
    path = write_lines(tmp_path / "w.jsonl", [GOOD, line])

    with pytest.raises(UserError) as caught:
        Workload.read(path)

    assert str(caught.value).startswith(f"{path}:2: {said}")
    assert caught.value.remedy is not None
    assert caught.value.exit_code is ExitCode.BAD_INPUT


@pytest.mark.parametrize("text", ["", "\n\n", '{"prompt_tokens": 7', "\xff"])
def test_a_file_that_is_empty_or_not_json_is_the_user_s_to_mend(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(UserError, match=r"w\.jsonl"):
        Workload.read(path)


def test_a_file_that_is_absent_is_the_user_s_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        Workload.read(tmp_path / "absent.jsonl")


def test_the_same_seed_draws_the_same_trajectories_and_another_others() -> None:
    assert Workload.generate(20, 7).trajectories == Workload.generate(20, 7).trajectories
    assert Workload.generate(20, 7).trajectories != Workload.generate(20, 8).trajectories


def log_spread(values: list[float]) -> float:
    return pstdev(math.log(value) for value in values)


def test_drawn_trajectories_have_the_medians_and_spreads_of_mathematical_react() -> None:
    drawn = Workload.generate(4000, 1).trajectories
    counts = [float(len(one.turns)) for one in drawn]
    outputs = [float(turn.output_tokens) for one in drawn for turn in one.turns]
    tools_s = [turn.tool_s for one in drawn for turn in one.turns[:-1] if turn.tool_s is not None]

    assert median(counts) == 6
    assert log_spread(counts) == pytest.approx(0.91, abs=0.04)
    assert max(counts) == 50
    assert median(outputs) == pytest.approx(700, rel=0.04)
    assert log_spread(outputs) == pytest.approx(0.88, abs=0.03)
    assert (min(outputs), max(outputs)) == (30, 4096)
    assert median(tools_s) == pytest.approx(0.3, rel=0.05)
    assert max(tools_s) == 20.0
    assert fmean(one.prompt_tokens for one in drawn) == pytest.approx(800, rel=0.02)


def test_alone_on_an_engine_a_trajectory_takes_its_prefills_steps_and_tools() -> None:
    turns = workload(trajectory(2, 1, prompt_tokens=1800, tool_s=0.5, observation_tokens=98)).unrolled[0]

    steps_s = 3 * (12e-3 + 0.12e-3) + 2e-9 * (1800 + 1801 + 1900)
    assert alone_s(turns, LAW, prefix_caching=False) == pytest.approx(0.5 + steps_s + 3700 / 18_000)
    # 1802 tokens were seen, three blocks of 544.
    assert alone_s(turns, LAW, prefix_caching=True) == pytest.approx(0.5 + steps_s + (3700 - 1632) / 18_000)


def test_the_longest_trajectory_bounds_a_run() -> None:
    load = workload(trajectory(5), trajectory(5, 500), trajectory(7))

    assert longest_alone_s(load, LAW, prefix_caching=False) == alone_s(
        load.unrolled[1], LAW, prefix_caching=False
    )


def test_full_batches_share_all_of_a_step_but_each_sequence_s_own_part() -> None:
    load = workload(*[trajectory(1, prompt_tokens=1800)] * 8)

    # Two engines, four turns each in one step.
    expected_s = 4 * 1800 / 18_000 + 12e-3 + 4 * 0.12e-3 + 2e-9 * 4 * 1800
    found_s = throughput_s(load, LAW, engines=2, slots=4, prefix_caching=False)
    assert found_s == pytest.approx(expected_s)
