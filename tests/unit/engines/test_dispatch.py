"""Where a turn goes."""

import random

import pytest
from support.fake_replica import key

from runner.engines.dispatch import CostModel, Dispatcher, Turn

BLOCK = CostModel().cache_block_tokens


def turn(name: str = "p0", number: int = 0, context_tokens: int = 1000) -> Turn:
    return Turn(key(name), number, context_tokens)


def dispatcher(*slots: int, prefix_caching: bool = False) -> Dispatcher:
    made = Dispatcher(slots, prefix_caching=prefix_caching)
    for engine in range(len(slots)):
        made.open(engine)
    return made


def fill(made: Dispatcher, engine: int, count: int, *, number: int = 0, context_tokens: int = 1000) -> None:
    for index in range(count):
        made.place(turn(f"other-{engine}-{index}", number, context_tokens), engine)


def with_a_trajectory_seen_in(engine: int, *, completion_tokens: int = 500) -> Dispatcher:
    """Two engines; the first turn of p0 was done in one of them."""
    made = dispatcher(64, 64, prefix_caching=True)
    first = turn(context_tokens=8000)
    made.place(first, engine)
    made.remove(first, engine, completion_tokens=completion_tokens)
    return made


SECOND = turn(number=1, context_tokens=8600)


def test_a_turn_goes_to_the_emptier_engine() -> None:
    made = dispatcher(8, 8)
    fill(made, 0, 2)
    fill(made, 1, 1)

    assert made.choose(turn()) == 1


def test_of_two_engines_with_as_many_turns_the_one_with_less_context_is_chosen() -> None:
    made = dispatcher(8, 8)
    fill(made, 0, 4, context_tokens=60_000)
    fill(made, 1, 4, context_tokens=1000)

    assert made.choose(turn()) == 1


def test_a_turn_delays_trajectories_that_have_come_far_rather_than_new_ones() -> None:
    made = dispatcher(8, 8)
    fill(made, 0, 3, number=0)
    fill(made, 1, 3, number=30)

    assert made.choose(turn()) == 1


def test_choosing_changes_nothing() -> None:
    made = dispatcher(1, 1)

    assert [made.choose(turn(f"p{index}")) for index in range(5)] == [0] * 5


def test_a_full_engine_is_not_chosen_and_when_all_are_full_none_is() -> None:
    made = dispatcher(1, 2)
    fill(made, 0, 1)
    assert made.choose(turn()) == 1

    fill(made, 1, 2)
    assert made.choose(turn()) is None


def test_an_engine_that_is_not_open_is_not_chosen() -> None:
    made = Dispatcher([4, 4], prefix_caching=False)
    assert made.choose(turn()) is None

    made.open(1)
    assert made.choose(turn()) == 1

    made.shut(1)
    assert made.choose(turn()) is None


@pytest.mark.parametrize("engine", [0, 1])
def test_with_a_prefix_cache_a_trajectory_stays_where_its_prefix_is(engine: int) -> None:
    made = with_a_trajectory_seen_in(engine)
    fill(made, engine, 1)

    assert made.choose(SECOND) == engine


def test_it_moves_when_its_engine_is_so_much_busier_that_moving_is_cheaper() -> None:
    made = with_a_trajectory_seen_in(0)
    fill(made, 0, 40)

    assert made.choose(SECOND) == 1


def test_it_moves_when_its_engine_is_full() -> None:
    made = with_a_trajectory_seen_in(0)
    fill(made, 0, 64)
    fill(made, 1, 63)

    assert made.choose(SECOND) == 1


def test_without_a_prefix_cache_nothing_ties_a_trajectory_to_an_engine() -> None:
    made = dispatcher(64, 64)
    first = turn(context_tokens=8000)
    made.place(first, 0)
    made.remove(first, 0, completion_tokens=500)
    fill(made, 0, 1)

    assert made.choose(SECOND) == 1
    assert made.cached_tokens(SECOND, 0) == 0


def test_a_prefix_is_cached_in_whole_blocks() -> None:
    made = with_a_trajectory_seen_in(0, completion_tokens=100)

    assert made.cached_tokens(SECOND, 0) == 8100 // BLOCK * BLOCK
    assert made.cached_tokens(SECOND, 1) == 0


def test_no_more_than_the_prompt_is_cached() -> None:
    made = with_a_trajectory_seen_in(0)

    assert made.cached_tokens(turn(number=1, context_tokens=BLOCK + 5), 0) == BLOCK


def test_an_engine_that_serves_again_has_an_empty_cache() -> None:
    made = with_a_trajectory_seen_in(0)

    made.shut(0)
    made.open(0)

    assert made.cached_tokens(SECOND, 0) == 0


def test_a_turn_that_was_lost_leaves_nothing_in_the_cache() -> None:
    made = dispatcher(4, prefix_caching=True)
    first = turn(context_tokens=8000)
    made.place(first, 0)

    made.remove(first, 0, completion_tokens=None)

    assert made.cached_tokens(SECOND, 0) == 0


def test_what_an_ended_trajectory_left_in_caches_is_forgotten() -> None:
    made = with_a_trajectory_seen_in(0)

    made.forget(key("p0"))

    assert made.cached_tokens(SECOND, 0) == 0


def test_a_turn_weighs_the_less_the_further_its_trajectory_has_come() -> None:
    weights = [turn(number=number).weight for number in range(50)]

    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) == len(weights)


def test_a_step_takes_what_the_law_says() -> None:
    assert CostModel().step_of_s(10, 20_000) == pytest.approx(12e-3 + 1.2e-3 + 40e-6)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_placed_and_removed_an_empty_engine_counts_nothing(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a test's load
    made = dispatcher(5, 5, prefix_caching=True)
    placed: list[tuple[Turn, int]] = []
    for index in range(400):
        one = turn(f"p{index}", draw.randrange(50), draw.randrange(1, 60_000))
        engine = made.choose(one)
        if engine is not None and draw.random() < 0.6:
            made.place(one, engine)
            placed.append((one, engine))
        elif placed:
            gone, where = placed.pop(draw.randrange(len(placed)))
            made.remove(gone, where, completion_tokens=draw.choice([None, 700]))
        for load in made._loads:
            assert len(load.turns) <= load.slots
            assert load.context_tokens == sum(each.context_tokens for each in load.turns)
            assert load.weight == pytest.approx(sum(each.weight for each in load.turns), abs=1e-12)
    for gone, where in placed:
        made.remove(gone, where, completion_tokens=None)

    assert [(load.turns, load.context_tokens, load.weight) for load in made._loads] == [(set(), 0, 0.0)] * 2


def test_of_more_engines_than_are_weighed_the_emptiest_is_found_and_the_one_that_knows_the_trajectory() -> (
    None
):
    made = Dispatcher([4] * 500, prefix_caching=True)
    for engine in range(500):
        made.open(engine)
    for index in range(499):
        made.place(turn(f"p{index}"), index)
    assert made.choose(turn("new")) == 499

    made.place(turn("known", 0, 20_000), 7)
    made.remove(turn("known", 0, 20_000), 7, completion_tokens=1000)
    assert made.choose(turn("known", 1, 21_000)) == 7
    made.forget(key("known"))
    assert made.choose(turn("known", 1, 21_000)) == 499
    for engine in range(500):
        made.shut(engine)
    assert made.choose(turn("new")) is None


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_and_goes_an_engine_is_filed_under_its_batch(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a test's load
    made = Dispatcher([3] * 80, prefix_caching=bool(seed % 2))
    placed: list[tuple[Turn, int]] = []
    for number in range(3000):
        engine = draw.randrange(80)
        what = draw.random()
        if what < 0.05:
            made.open(engine)
        elif what < 0.08:
            made.shut(engine)
        elif what < 0.6:
            one = turn(f"p{draw.randrange(200)}", number, draw.randrange(5000))
            chosen = made.choose(one)
            if chosen is not None:
                made.place(one, chosen)
                placed.append((one, chosen))
        elif placed:
            one, where = placed.pop(draw.randrange(len(placed)))
            made.remove(one, where, completion_tokens=draw.choice([None, 100]))
        if what > 0.95:
            made.forget(key(f"p{draw.randrange(200)}"))
    filed = {engine: batch for batch, engines in made._by_batch.items() for engine in engines}
    assert filed == {index: len(load.turns) for index, load in enumerate(made._loads) if load.free}
    seen = {(known, index) for index, load in enumerate(made._loads) for known in load.seen_tokens}
    assert {(known, index) for known, engines in made._seen_in.items() for index in engines} == seen


@pytest.mark.parametrize("engines", [4, 200])
def test_idle_engines_have_turns_in_turn(engines: int) -> None:
    made = dispatcher(*[8] * engines)
    chosen = []
    for index in range(3 * engines):
        one = turn(f"p{index}", context_tokens=100 * (index % 7))
        where = made.choose(one)
        assert where is not None
        made.place(one, where)
        made.remove(one, where, completion_tokens=10)
        chosen.append(where)

    assert [chosen.count(index) for index in range(engines)] == [3] * engines
