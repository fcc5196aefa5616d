"""The pool's counts: waiting turns and the use of a replica."""

import random

import anyio
from support.fake_replica import FakeReplica, completion, in_virtual_time, key, request

from runner.engines.dispatch import Turn
from runner.engines.membership import Member, Ticket, Use, WaitingTurns
from runner.engines.reports import ReplicaState


def ticket(number: int, name: str = "p0") -> Ticket:
    return Ticket(Turn(key(name), number, 100))


def names(waiting: WaitingTurns) -> list[str]:
    taken = []
    while (one := waiting.take()) is not None:
        taken.append(one.turn.key.problem_id)
    return taken


@in_virtual_time
async def test_trajectories_that_have_come_least_far_come_first_and_else_who_waits_longest() -> None:
    waiting = WaitingTurns()
    for number, name in ((3, "d"), (0, "a"), (1, "c"), (0, "b")):
        waiting.add(ticket(number, name))

    assert names(waiting) == ["a", "b", "c", "d"]


@in_virtual_time
async def test_who_is_gone_is_passed_over_and_not_counted() -> None:
    waiting = WaitingTurns()
    gone, stays = ticket(0, "gone"), ticket(1, "stays")
    waiting.add(gone)
    waiting.add(stays)
    gone.gone = True

    assert len(waiting) == 1
    assert waiting.first() is stays
    assert names(waiting) == ["stays"]


@in_virtual_time
async def test_nobody_waits_in_an_empty_queue() -> None:
    waiting = WaitingTurns()

    assert (waiting.first(), waiting.take(), len(waiting)) == (None, None, 0)


@in_virtual_time
async def test_the_order_holds_for_any_coming_and_going() -> None:
    draw = random.Random(3)  # noqa: S311 - a test's load
    waiting = WaitingTurns()
    tickets = [ticket(draw.randrange(5), str(index)) for index in range(200)]
    for one in tickets:
        waiting.add(one)
    for one in draw.sample(tickets, 80):
        one.gone = True
    left = [one for one in tickets if not one.gone]

    assert len(waiting) == 120
    assert names(waiting) == [
        one.turn.key.problem_id for one in sorted(left, key=lambda one: one.turn.number)
    ]


@in_virtual_time
async def test_use_is_integrated_over_time() -> None:
    use = Use()
    use.up()
    await anyio.sleep(1)
    use.count(2)
    await anyio.sleep(3)
    use.count(1)
    await anyio.sleep(4)
    use.count(0)
    await anyio.sleep(5)
    use.down()

    assert (use.serving_s, use.busy_s, use.batch_s) == (13.0, 7.0, 10.0)


@in_virtual_time
async def test_time_in_which_it_did_not_serve_is_not_counted() -> None:
    use = Use()
    await anyio.sleep(10)
    use.up()
    await anyio.sleep(1)
    use.down()
    await anyio.sleep(10)
    use.up()
    await anyio.sleep(1)
    use.count(0)

    assert (use.serving_s, use.busy_s) == (2.0, 0.0)


@in_virtual_time
async def test_done_turns_count_their_tokens() -> None:
    use = Use()
    use.done(completion(request(prompt_tokens=70), tokens=5))
    use.done(completion(request(prompt_tokens=30), tokens=6))

    assert (use.turns, use.prompt_tokens, use.completion_tokens) == (2, 100, 11)


@in_virtual_time
async def test_what_a_turn_of_an_earlier_life_learns_late_says_nothing_of_this_one() -> None:
    member = Member(0, FakeReplica())
    member.state, member.starts = ReplicaState.SERVING, 2

    member.report_lost("late", of_start=1)
    assert not member.lost.is_set()

    member.report_lost("true", of_start=2)
    assert (member.lost.is_set(), member.cause) == (True, "true")
