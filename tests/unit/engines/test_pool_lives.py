"""Replicas of a pool that die, hang and come up again, and cancelled turns: no place and no turn is lost."""

import random
from collections import Counter

import anyio
import pytest
from support.fake_replica import FakePool, FakeReplica, completion, in_virtual_time, key, request
from support.pools import four, generate_all

from runner.engines.base import (
    Completion,
    EngineUnavailableError,
    GenerationRequest,
    GenerationTiming,
)
from runner.engines.pool import RestartPolicy
from runner.engines.replica import ReplicaLostError, ReplicaStartError
from runner.engines.reports import ReplicaDown, ReplicaReport, ReplicaState, ReplicaUp


async def hang(asked: GenerationRequest) -> Completion:
    await anyio.sleep_forever()
    return completion(asked)


def never_after_the_first(number: int) -> None:
    if number > 1:
        raise ReplicaStartError(f"start {number} failed")


@in_virtual_time
async def test_turns_of_a_lost_replica_are_done_elsewhere_at_the_same_turn() -> None:
    a, b = FakeReplica("a", turn_s=10), FakeReplica("b", turn_s=10)
    async with FakePool([a, b]) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(kill_after, a, 4)
        a.start_s = 1000
        done = await generate_all(pool, *four(turn=3))

    assert {one.engine for one in done} == {"b"}
    assert [one.text for one in done] == ["p0/3", "p1/3", "p2/3", "p3/3"]
    assert len(a.asked) == 2
    assert sorted(b.asked) == ["p0", "p1", "p2", "p3"]


async def kill_after(replica: FakeReplica, seconds: float) -> None:
    await anyio.sleep(seconds)
    replica.kill()


@in_virtual_time
async def test_a_loss_tells_how_many_turns_wait_again_and_the_replica_comes_up_again() -> None:
    reports: list[ReplicaReport] = []
    replica = FakeReplica("a", turn_s=10, start_s=2)
    async with FakePool([replica]) as pool, anyio.create_task_group() as tasks:
        pool.report_to(reports.append)
        tasks.start_soon(kill_after, replica, 4)
        done = await generate_all(pool, request("p0"), request("p1"))
        ended = anyio.current_time()

    assert len(done) == 2
    assert reports == [
        ReplicaUp("a", 2.0, 1),
        ReplicaDown("a", "a was killed", requeued=2, given_up=False),
        ReplicaUp("a", 2.0, 2),
    ]
    # Killed at 6, a pause of 1 s since it had done no turn yet, 2 s of start, 10 s of the turn.
    assert ended == 19.0


@in_virtual_time
async def test_who_begins_to_listen_late_is_told_what_was_before() -> None:
    replica = FakeReplica("a")
    async with FakePool([replica]) as pool:
        replica.kill()
        await anyio.sleep(5)
        reports: list[ReplicaReport] = []
        pool.report_to(reports.append)

        assert [type(one) for one in reports] == [ReplicaUp, ReplicaDown, ReplicaUp]


@in_virtual_time
async def test_a_replica_that_did_work_is_started_again_at_once() -> None:
    replica = FakeReplica("a")
    async with FakePool([replica]) as pool:
        await pool.generate(request())
        replica.kill()
        await anyio.sleep(5)

    assert replica.started_at == [0.0, 1.0]


@in_virtual_time
async def test_starts_that_fail_are_repeated_after_growing_pauses_up_to_a_cap_and_then_given_up() -> None:
    a = FakeReplica("a", on_start=never_after_the_first)
    policy = RestartPolicy(starts=6, wait_s=1.0, wait_cap_s=5.0)
    reports: list[ReplicaReport] = []
    async with FakePool([a, FakeReplica("b")], policy=policy) as pool:
        pool.report_to(reports.append)
        a.kill()
        await anyio.sleep(1000)
        snapshot = await pool.snapshot()
        done = await pool.generate(request())

    # Pauses of 1, 2, 4, 5, 5 s.
    assert a.started_at == [0.0, 1.0, 3.0, 7.0, 12.0, 17.0]
    assert a.closed_at[0] == 17.0
    assert snapshot.replicas[0].state is ReplicaState.GIVEN_UP
    downs = [one for one in reports if isinstance(one, ReplicaDown)]
    assert [one.given_up for one in downs] == [False] * 5 + [True]
    assert downs[-1].cause == "start 6 failed"
    assert done.engine == "b"


@in_virtual_time
async def test_a_turn_that_succeeds_makes_the_count_of_fruitless_starts_begin_anew() -> None:
    replica = FakeReplica("a")
    async with FakePool([replica], policy=RestartPolicy(starts=2)) as pool:
        for _ in range(6):
            await pool.generate(request())
            replica.kill()
            await anyio.sleep(10)
        snapshot = await pool.snapshot()

    assert snapshot.replicas[0].starts == 7
    assert snapshot.replicas[0].state is ReplicaState.SERVING


@in_virtual_time
async def test_when_no_replica_is_left_waiting_and_new_turns_are_told_so_with_the_causes() -> None:
    a = FakeReplica("a", slots=1, turn_s=100, on_start=never_after_the_first)
    errors: list[EngineUnavailableError] = []

    async def ask(pool: FakePool, name: str) -> None:
        with pytest.raises(EngineUnavailableError) as caught:
            await pool.generate(request(name))
        errors.append(caught.value)

    async with FakePool([a], policy=RestartPolicy(starts=3)) as pool:
        async with anyio.create_task_group() as tasks:
            for name in ("p0", "p1", "p2"):
                tasks.start_soon(ask, pool, name)
            await anyio.sleep(1)
            a.kill()
        await ask(pool, "p3")
        snapshot = await pool.snapshot()

    assert [str(one) for one in errors] == ["no engine is left (a: start 3 failed)"] * 4
    assert snapshot.queued == 0


@in_virtual_time
async def test_a_turn_that_replicas_do_not_survive_is_given_up_and_the_others_go_on() -> None:
    replicas: list[FakeReplica] = []

    def deadly(index: int) -> FakeReplica:
        async def answer(asked: GenerationRequest) -> Completion:
            await anyio.sleep(1)
            if asked.key.problem_id == "deadly":
                replicas[index].kill()
                await anyio.sleep_forever()
            return completion(asked)

        return FakeReplica("ab"[index], on_turn=answer)

    replicas += [deadly(0), deadly(1)]
    async with FakePool(replicas, policy=RestartPolicy(starts=9, losses_a_turn=3)) as pool:
        with pytest.raises(EngineUnavailableError, match="3 engines in a row were lost") as caught:
            await pool.generate(request("deadly"))
        done = await pool.generate(request("p0"))

    assert isinstance(caught.value.__cause__, ReplicaLostError)
    assert sum(one.asked.count("deadly") for one in replicas) == 3
    assert done.text == "p0/0"


@in_virtual_time
async def test_a_replica_that_a_turn_finds_dead_is_down_for_all_without_its_own_watch() -> None:
    async def broken(_: GenerationRequest) -> Completion:
        await anyio.sleep(1)
        raise ReplicaLostError("connection reset")

    reports: list[ReplicaReport] = []
    a, b = FakeReplica("a", on_turn=broken), FakeReplica("b")
    # A loss that were counted twice would be one too many for this turn.
    async with FakePool([a, b], policy=RestartPolicy(losses_a_turn=2)) as pool:
        pool.report_to(reports.append)
        a.start_s = 100
        done = await pool.generate(request())

    assert (done.engine, a.asked) == ("b", ["p0"])
    assert ReplicaDown("a", "connection reset", requeued=0, given_up=False) in reports


@in_virtual_time
async def test_a_replica_in_which_a_turn_hangs_is_started_again_and_the_turn_is_done_elsewhere() -> None:
    hanging, well = FakeReplica("a", on_turn=hang), FakeReplica("b")
    reports: list[ReplicaReport] = []
    async with FakePool([hanging, well], policy=RestartPolicy(generation_timeout_s=600)) as pool:
        pool.report_to(reports.append)
        hanging.start_s = 50
        done = await pool.generate(request())
        ended = anyio.current_time()
        await anyio.sleep(100)

    assert (done.engine, ended) == ("b", 601.0)
    assert [one.cause for one in reports if isinstance(one, ReplicaDown)] == [
        "a did not end a turn within 600 s"
    ]
    assert len(hanging.started_at) == 2


@in_virtual_time
async def test_a_turn_of_an_earlier_life_that_dies_late_does_not_take_the_next_life_down() -> None:
    async def dies_slowly(asked: GenerationRequest) -> Completion:
        try:
            return await hang(asked)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(20)
            # What a connection says that is torn down only now.
            raise ReplicaLostError("gone long since") from None

    replica = FakeReplica("a", on_turn=dies_slowly)
    async with FakePool([replica]) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(kill_after, replica, 1)
        tasks.start_soon(pool.generate, request("p0"))
        await anyio.sleep(3)
        replica.on_turn = None
        await anyio.sleep(100)

    assert len(replica.started_at) == 2


@in_virtual_time
async def test_a_cancelled_trajectory_frees_its_place_for_the_next_that_waits() -> None:
    replica = FakeReplica(slots=1, turn_s=100)
    async with FakePool([replica]) as pool:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pool.generate, request("p0"))
                await anyio.sleep(5)
                scope.cancel()
        done = await pool.generate(request("p1"))

    assert (done.text, done.timing) == ("p1/0", GenerationTiming(queue_s=0.0))


@in_virtual_time
async def test_a_cancelled_waiting_turn_is_never_asked_for() -> None:
    replica = FakeReplica(slots=1, turn_s=10)
    async with FakePool([replica]) as pool, anyio.create_task_group() as tasks:
        tasks.start_soon(pool.generate, request("p0"))
        await anyio.sleep(1)
        with anyio.move_on_after(2):
            await pool.generate(request("impatient"))
        await pool.generate(request("p1"))

    assert replica.asked == ["p0", "p1"]


@pytest.mark.parametrize("seed", range(8))
def test_no_place_is_lost_whatever_is_cancelled_and_killed(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a test's load

    @in_virtual_time
    async def scenario() -> None:
        replicas = [FakeReplica(name, slots=3, start_s=0.5) for name in "abc"]
        policy = RestartPolicy(starts=10**6, wait_cap_s=2.0, losses_a_turn=10**6)
        outcomes: Counter[str] = Counter()

        async def trajectory(pool: FakePool, name: str) -> None:
            with anyio.move_on_after(draw.uniform(0.1, 30)) as scope:
                for turn in range(draw.randint(1, 8)):
                    await pool.generate(request(name, turn, prompt_tokens=draw.randint(1, 9000)))
                    await anyio.sleep(draw.choice([0.0, 0.3]))
            pool.ended(key(name))
            outcomes["cancelled" if scope.cancelled_caught else "done"] += 1

        async with FakePool(replicas, policy=policy, prefix_caching=bool(seed % 2)) as pool:
            async with anyio.create_task_group() as tasks:
                for index in range(60):
                    tasks.start_soon(trajectory, pool, f"p{index}")
                for _ in range(12):
                    tasks.start_soon(kill_after, draw.choice(replicas), draw.uniform(0, 20))
            await anyio.sleep(10)
            snapshot = await pool.snapshot()

            assert all(one.most_running <= one.slots for one in replicas)
            assert [one.running for one in snapshot.replicas] == [0, 0, 0]
            assert [one.running for one in replicas] == [0, 0, 0]
            assert snapshot.queued == 0
            loads = pool.dispatcher._loads
            assert [(len(load.turns), load.context_tokens, load.weight) for load in loads] == [
                (0, 0, 0.0)
            ] * 3
            assert [load.seen_tokens for load in loads] == [{}] * 3
            done = await generate_all(pool, *(request(f"q{index}") for index in range(9)))
            assert Counter(one.engine for one in done) == {"a": 3, "b": 3, "c": 3}
        assert sum(outcomes.values()) == 60
        assert len(outcomes) == 2

    scenario()
