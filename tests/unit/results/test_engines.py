"""Figures of engines and of trajectories' time, computed by hand; unknown is None and never 0."""

import json
from itertools import accumulate
from typing import Any

import pytest
from support.engine_events import engine_down, engine_up, sample, use
from support.events import began, ended, run_started, terminated, turn, unfinished

from runner.engines.reports import ReplicaState
from runner.events import AnyEvent
from runner.results.build import build_results
from runner.results.summary import summary_text
from runner.state import reduce_events

GIB = 1 << 30
GPU_A = {"preemptions": 2, "gpu_utilization": 0.9, "gpu_memory_used_bytes": 30 * GIB}
GPU_B = {"preemptions": 0, "gpu_utilization": 0.3, "gpu_memory_used_bytes": 50 * GIB}
CACHE = {"prefix_cache_queries": 400, "prefix_cache_hits": 100, "kv_cache_usage": 0.5}
RUN: tuple[AnyEvent, ...] = (
    run_started("p0", "p1", at=1000.0),
    engine_up("a", at=1000.0),
    engine_up("b", at=1000.0),
    sample(use("a", serving_s=5.0), use("b"), at=1000.0, queued=0),
    began(),
    began("p1", row=1),
    turn(
        engine="a",
        prompt_tokens=1000,
        completion_tokens=300,
        cached_tokens=600,
        at=1010.0,
        generate_wait_s=1.0,
        generate_s=8.0,
        queue_s=2.0,
        prefill_s=1.5,
        decode_s=4.5,
        tool_wait_s=0.5,
        tool_s=1.0,
    ),
    sample(
        use("a", serving_s=15.0, busy_s=8.0, batch_s=12.0, completion_tokens=300, stats=GPU_A | CACHE),
        use("b", serving_s=10.0, busy_s=2.0, batch_s=2.0, stats=GPU_B),
        at=1010.0,
        queued=6,
    ),
    engine_down("b", at=1012.0, cause="killed", requeued=1),
    terminated(elapsed_s=15.0, at=1015.0),
    engine_up("b", at=1017.0, starts=2),
    turn(
        problem_id="p1",
        engine="b",
        prompt_tokens=500,
        completion_tokens=100,
        at=1019.0,
        generate_s=4.0,
        tool_s=3.0,
    ),
    terminated("p1", elapsed_s=5.0, at=1020.0),
    sample(
        use("a", serving_s=25.0, busy_s=10.0, batch_s=25.0, completion_tokens=300, stats=GPU_A | CACHE),
        use("b", serving_s=15.0, busy_s=5.0, batch_s=5.0, completion_tokens=100, starts=2, stats=GPU_B),
        at=1020.0,
        queued=0,
    ),
    ended().model_copy(update={"at": 1020.0}),
)


def engines(*events: AnyEvent) -> dict[str, Any]:
    found: dict[str, Any] = build_results(reduce_events(events))["engines"]
    return found


def test_the_run_s_figures_are_what_a_hand_computes() -> None:
    assert engines(*RUN)["run"] == {
        "wall_s": 20.0,
        "turns": 2,
        "prompt_tokens": 1500,
        "completion_tokens": 400,
        "cached_tokens": 600,
        "prompt_tokens_per_s": 75.0,
        "completion_tokens_per_s": 20.0,
        "completion_tokens_per_busy_s": 26.6667,  # 400 tokens in 10 + 5 s
        "generate_s": 12.0,
        "queue_s": 2.0,
        "prefill_s": 1.5,
        "decode_s": 4.5,
        "serving_s": 35.0,  # of a's 25, 5 passed before the run began
        "busy_s": 15.0,
        "idle_share": 0.5714,  # 20 of 35
        "mean_batch": 2.0,  # (25 + 5) of 15
        "restarts": 1,
        "losses": 1,
        "preemptions": 2,
        "prefix_cache_queries": 400,
        "prefix_cache_hits": 100,
        "prefix_cache_hit_share": 0.25,
        "largest_kv_cache_usage": 0.5,
        "mean_gpu_utilization": 0.6,
        "largest_gpu_memory_used_bytes": 50 * GIB,
        "gpu_memory_total_bytes": None,
        "mean_queue": 3.0,  # 0 for 10 s, 6 for 10 s
        "largest_queue": 6,
        "given_up": 0,
    }


def test_each_engine_s_figures_are_its_own() -> None:
    found = engines(*RUN)["by_engine"]

    assert list(found) == ["a", "b"]
    a, b = found["a"], found["b"]
    assert (a["state"], a["turns"], a["completion_tokens"], a["completion_tokens_per_s"]) == (
        *("serving", 1, 300, 15.0),
    )
    assert (a["completion_tokens_per_busy_s"], a["idle_share"], a["mean_batch"]) == (30.0, 0.5, 2.5)
    assert (a["mean_gpu_utilization"], a["preemptions"], a["last_losses"]) == (0.9, 2, [])
    assert (b["idle_share"], b["mean_batch"], b["restarts"]) == (0.6667, 1.0, 1)
    assert (b["prefill_s"], b["queue_s"], b["cached_tokens"], b["prefix_cache_hit_share"]) == (None,) * 4
    assert b["last_losses"] == [
        {"at": 1012.0, "cause": "killed", "requeued": 1, "given_up": False, "back_after_s": 5.0}
    ]


def test_shares_of_trajectories_time_are_what_a_hand_computes() -> None:
    assert engines(*RUN)["trajectories"] == {
        "scored": 2,
        "elapsed_s": 20.0,
        "generation_share": 0.5,  # 8 + 4 - 2 in the queue
        "generation_wait_share": 0.15,  # 1 + 2
        "tool_share": 0.2,  # 1 + 3
        "tool_wait_share": 0.025,  # 0.5
        "rest_share": 0.125,
        "tail_s": 0.0,
    }


def test_an_engine_that_nobody_samples_has_what_its_turns_tell_and_nothing_else() -> None:
    found = engines(run_started(at=10.0), began(), turn(engine="scripted", at=11.0), terminated(at=12.0))

    one = found["by_engine"]["scripted"]
    assert (one["turns"], one["prompt_tokens"], one["completion_tokens"]) == (1, 3, 2)
    assert (one["prompt_tokens_per_s"], one["completion_tokens_per_s"], one["generate_s"]) == (1.5, 1.0, 0.1)
    unknown = ("state", "completion_tokens_per_busy_s", "idle_share", "mean_batch", "serving_s", "busy_s")
    assert {one[name] for name in unknown} == {None}
    assert {found["run"][name] for name in ("idle_share", "mean_queue", "largest_queue")} == {None}
    assert (one["restarts"], one["losses"], one["preemptions"]) == (0, 0, None)


def test_an_engine_without_work_is_idle_all_the_time_and_has_no_batch() -> None:
    found = engines(run_started(at=0.0), engine_up(), sample(use(serving_s=30.0), at=30.0))

    one = found["by_engine"]["a"]
    assert (one["idle_share"], one["busy_s"], one["serving_s"]) == (1.0, 0.0, 30.0)
    assert (one["mean_batch"], one["completion_tokens_per_busy_s"]) == (None, None)
    assert one["completion_tokens_per_s"] == 0.0


def test_an_engine_that_never_served_while_it_was_watched_has_no_idle_share() -> None:
    found = engines(run_started(), sample(use(state=ReplicaState.LOST)), engine_down(given_up=True))

    assert found["by_engine"]["a"]["idle_share"] is None
    assert found["by_engine"]["a"]["state"] == "given_up"
    assert (found["run"]["given_up"], found["run"]["losses"], found["run"]["restarts"]) == (1, 1, 0)


@pytest.mark.parametrize("count", range(1, len(RUN) + 1))
def test_any_beginning_of_a_journal_has_figures_that_json_can_hold(count: int) -> None:
    results = build_results(reduce_events(RUN[:count]))

    assert json.loads(json.dumps(results["engines"], allow_nan=False)) == results["engines"]
    assert summary_text(results)


def ends(*at: float, planned: int) -> list[AnyEvent]:
    ids = [f"p{row}" for row in range(planned)]
    events: list[AnyEvent] = [run_started(*ids, at=0.0), *(began(one) for one in ids)]
    for place, (one, when) in enumerate(zip(ids, at)):  # noqa: B905 - some may not end
        end = unfinished(one) if place % 2 else terminated(one)
        events.append(end.model_copy(update={"at": when}))
    return events


@pytest.mark.parametrize(
    ("planned", "ended_count", "tail_s"),
    [
        pytest.param(20, 20, 1.0, id="the nineteenth end leaves one of twenty"),
        pytest.param(30, 30, 2.0, id="the twenty-eighth leaves two of thirty"),
        pytest.param(30, 29, 1.0, id="one has not ended"),
        pytest.param(30, 27, None, id="a tenth is left"),
        pytest.param(5, 5, 0.0, id="the last is all there is to a tenth"),
        pytest.param(5, 0, None, id="none has ended"),
    ],
)
def test_the_tail_is_from_when_fewer_than_a_tenth_are_left_to_the_last_end(
    planned: int, ended_count: int, tail_s: float | None
) -> None:
    times = list(accumulate([1.0] * ended_count))

    assert engines(*ends(*times, planned=planned))["trajectories"]["tail_s"] == tail_s
