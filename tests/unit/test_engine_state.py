"""Engines in a run's state: sums that grow event by event, over losses, restarts and continued journals."""

from support.engine_events import engine_down, engine_up, sample, use
from support.events import began, retried, run_started, terminated, turn

from runner.engine_state import LOSSES_KEPT, EngineState, PoolUse
from runner.engines.reports import ReplicaState
from runner.events import AnyEvent
from runner.state import reduce_events


def engine(*events: AnyEvent, name: str = "a") -> EngineState:
    return reduce_events([run_started(), *events]).engines.by_name[name]


def test_an_engine_that_is_up_serves_and_has_lost_nothing() -> None:
    found = engine(engine_up())

    assert (found.state, found.restarts, found.losses) == (ReplicaState.SERVING, 0, 0)
    assert found.use is None


def test_an_engine_that_went_down_and_came_up_again_tells_why_and_for_how_long() -> None:
    found = engine(
        engine_up(at=1.0),
        engine_down(at=20.0, cause="killed", requeued=4),
        engine_down(at=25.0, cause="did not come up", requeued=0),
        engine_up(at=32.5, starts=3),
    )

    assert (found.state, found.restarts, found.losses) == (ReplicaState.SERVING, 1, 2)
    assert [(one.at, one.cause, one.requeued, one.back_after_s) for one in found.last_losses] == [
        (20.0, "killed", 4, 12.5),
        (25.0, "did not come up", 0, 7.5),
    ]


def test_an_engine_that_is_given_up_never_comes_back() -> None:
    found = engine(engine_up(), engine_down(given_up=True))

    assert found.state is ReplicaState.GIVEN_UP
    assert [(one.given_up, one.back_after_s) for one in found.last_losses] == [(True, None)]


def test_losses_are_counted_beyond_those_that_are_kept() -> None:
    found = engine(*(engine_down(at=float(at), cause=str(at)) for at in range(LOSSES_KEPT + 5)))

    assert found.losses == LOSSES_KEPT + 5
    assert [one.cause for one in found.last_losses][:2] == ["5", "6"]
    assert len(found.last_losses) == LOSSES_KEPT


def test_an_engine_of_which_nothing_was_heard_before_may_go_down_or_be_sampled() -> None:
    state = reduce_events([run_started(), engine_down("x"), sample(use("y", state=ReplicaState.STARTING))])

    assert {name: one.state for name, one in state.engines.by_name.items()} == {
        "x": ReplicaState.LOST,
        "y": ReplicaState.STARTING,
    }


def test_turns_are_summed_by_engine_whatever_became_of_their_trajectory() -> None:
    state = reduce_events(
        [
            run_started(),
            began(),
            turn(engine="a", cached_tokens=1, prefill_s=0.25),
            retried(),
            began(attempt=2),
            turn(engine="a", prefill_s=0.5, queue_s=0.125),
            turn(engine="b", number=1, prompt_tokens=30, completion_tokens=20, generate_s=1.5),
            terminated(),
        ]
    )

    a, b = (state.engines.by_name[name].produced for name in "ab")
    assert (a.turns, a.prompt_tokens, a.completion_tokens, a.generate_s) == (2, 6, 4, 0.2)
    assert (a.cached_tokens, a.prefill_s, a.queue_s, a.decode_s) == (1, 0.75, 0.125, None)
    assert (b.turns, b.prompt_tokens, b.completion_tokens, b.generate_s) == (1, 30, 20, 1.5)
    assert (b.cached_tokens, b.prefill_s, b.queue_s) == (None, None, None)
    assert state.engines.by_name["a"].state is None


def test_the_newest_sample_alone_counts_and_alone_is_kept() -> None:
    found = engine(
        sample(use(serving_s=10.0, busy_s=4.0, batch_s=8.0), at=10.0),
        sample(use(serving_s=20.0, busy_s=9.0, batch_s=21.0, completion_tokens=100), at=20.0),
    )

    assert found.use == PoolUse(completion_tokens=100, serving_s=20.0, busy_s=9.0, batch_s=21.0)


def test_time_in_which_an_engine_served_before_the_run_began_is_not_the_run_s() -> None:
    events: list[AnyEvent] = [run_started(at=100.0), sample(use(serving_s=61.0), at=101.0)]
    events.append(sample(use(serving_s=80.0, busy_s=5.0, batch_s=5.0), at=120.0))

    used = reduce_events(events).engines.by_name["a"].use

    assert used == PoolUse(serving_s=20.0, busy_s=5.0, batch_s=5.0)


def test_what_an_engine_counts_goes_on_over_its_restart() -> None:
    found = engine(
        sample(use(stats={"preemptions": 3, "prefix_cache_queries": 100, "prefix_cache_hits": 40})),
        sample(use(stats={"preemptions": 5, "prefix_cache_queries": 200, "prefix_cache_hits": 90})),
        sample(use(state=ReplicaState.LOST, starts=1)),
        sample(use(starts=2, stats={"preemptions": 6, "prefix_cache_queries": 50, "prefix_cache_hits": 0})),
        sample(use(starts=2, stats={"preemptions": 7, "prefix_cache_queries": 60})),
    )

    assert found.preemptions.total == 12
    assert found.prefix_cache_queries.total == 260
    assert found.prefix_cache_hits.total == 90


def test_a_counter_that_fell_began_again() -> None:
    found = engine(
        *(sample(use(stats={"preemptions": count})) for count in (8, 3, 4)),
    )

    assert found.preemptions.total == 12


def test_what_no_sample_tells_stays_unknown() -> None:
    found = engine(sample(use(stats={"running": 1})), sample(use(state=ReplicaState.LOST)))

    assert (found.preemptions.total, found.prefix_cache_hits.total) == (None, None)
    assert (found.largest_kv_cache_usage, found.gpu_utilization_samples) == (None, 0)


def test_waiting_turns_are_integrated_from_sample_to_sample() -> None:
    state = reduce_events(
        [
            run_started(),
            *(sample(at=at, queued=queued) for at, queued in ((1.0, 4), (11.0, 10), (13.0, 0), (23.0, 0))),
        ]
    )

    assert (state.engines.queue_turn_s, state.engines.queue_s) == (60.0, 22.0)
    assert (state.engines.largest_queue, state.engines.queued) == (10, 0)


def test_a_continued_journal_adds_engines_that_count_from_nothing_again() -> None:
    state = reduce_events(
        [
            run_started(at=1000.0),
            engine_up(at=1000.0),
            sample(use(serving_s=30.0, busy_s=10.0, batch_s=20.0, stats={"preemptions": 2}), at=1030.0),
            engine_down(at=1040.0),
            run_started(at=9000.0),
            engine_up(at=9000.0),
            sample(use(serving_s=50.0, busy_s=25.0, batch_s=30.0, stats={"preemptions": 5}), at=9050.0),
        ]
    )

    found = state.engines.by_name["a"]
    assert found.use == PoolUse(serving_s=80.0, busy_s=35.0, batch_s=50.0)
    assert found.preemptions.total == 7
    assert (found.restarts, [one.back_after_s for one in found.last_losses]) == (0, [None])
    assert state.wall_s == 90.0


def test_no_engine_of_a_killed_run_is_taken_for_one_that_serves_when_it_goes_on() -> None:
    state = reduce_events([run_started(), engine_up("a"), engine_up("b"), run_started(), engine_up("b")])

    assert [one.state for one in state.engines.by_name.values()] == [None, ReplicaState.SERVING]
