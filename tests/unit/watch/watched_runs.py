"""A small run for the viewer."""

from support.events import began, retried, run_started, unfinished
from support.watched import bash_turn, solved

from runner.events import AnyEvent
from runner.protocol.score import Termination

MANY = 10_000


def small_run() -> list[AnyEvent]:
    """One right, one wrong, one at a limit, one unfinished, one running, one waiting."""
    return [
        run_started(*(f"p{number}" for number in range(6))),
        *solved("p0", 0, "echo first"),
        *solved("p1", 1, "python3 -c 'print(41)'", score=0.0, prediction="41"),
        *solved("p2", 2, score=0.0, termination=Termination.MAX_TURNS, prediction=""),
        began("p3", row=3),
        retried("p3", cause="sandbox gone"),
        began("p3", row=3, attempt=2),
        unfinished("p3", attempt=2, cause="sandbox gone again"),
        began("p4", row=4),
        bash_turn("p4", "sleep 9"),
    ]
