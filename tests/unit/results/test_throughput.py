"""What summary and lines say of engines: throughput, idle time, losses; harmless whatever they hold."""

import unicodedata

from support.engine_events import engine_down, engine_up, sample, use
from support.events import began, ended, run_started, terminated, turn

from runner.events import AnyEvent
from runner.results.build import build_results
from runner.results.throughput import throughput_lines
from runner.state import reduce_events
from runner.views.lines import LinesView

HOSTILE = "\x1b]52;c;x\x07\x1b[2J[bold red]\u202e\r\nx=1 " + "y" * 500
PLAYED: tuple[AnyEvent, ...] = (
    began(),
    turn(
        engine="a",
        prompt_tokens=900,
        completion_tokens=100,
        at=4.0,
        generate_s=3.0,
        generate_wait_s=0.5,
        tool_s=1.0,
    ),
    terminated(elapsed_s=5.0, at=5.0),
)


def shown(*events: AnyEvent) -> list[str]:
    engines = build_results(reduce_events([run_started(at=0.0), *events]))["engines"]
    return [line.plain for line in throughput_lines(engines)]


def lines(*events: AnyEvent) -> list[str]:
    found: list[str] = []
    view = LinesView(found.append)
    for event in (run_started(), *events):
        view(event)
    return found[1:]


def test_throughput_and_the_shares_of_time_are_two_lines() -> None:
    assert shown(
        *PLAYED, sample(use("a", serving_s=5.0, busy_s=3.0, batch_s=6.0), at=5.0), sample(at=8.0, queued=0)
    ) == [
        "engines: 900 tokens in, 100 out, 12.5 tokens/s, idle 40.0%, mean batch 2.0, mean queue 0.0",
        (
            "trajectories: generating 60.0%, waiting to generate 10.0%, in tools 20.0%,"
            " waiting for tools 0.0%, rest 10.0%, tail 0.0 s"
        ),
    ]


def test_of_an_engine_that_tells_nothing_its_tokens_are_shown() -> None:
    assert shown(*PLAYED)[0] == "engines: 900 tokens in, 100 out, 20.0 tokens/s"


def test_a_run_that_asked_no_engine_shows_nothing_of_engines() -> None:
    assert shown(began(), ended()) == []


def test_each_loss_is_a_line_in_the_order_of_time() -> None:
    assert shown(
        engine_down("b", at=1.0, cause="killed"),
        engine_up("b", at=3.5, starts=2),
        engine_down("a", at=2.0, cause="out of memory", given_up=True),
        engine_down("b", at=4.0, cause="killed again"),
    ) == [
        "engine b lost, back after 2.5 s: killed",
        "engine a lost, given up: out of memory",
        "engine b lost, not back: killed again",
    ]


def test_many_losses_are_shown_in_part_and_counted() -> None:
    found = shown(*(engine_down(at=float(at)) for at in range(30)))

    assert len(found) == 6
    assert found[-1] == "engines were lost 25 more times"


def test_hostile_names_and_causes_are_harmless_in_summary_and_lines() -> None:
    for line in (*shown(engine_down(HOSTILE, cause=HOSTILE)), *lines(engine_down(HOSTILE, cause=HOSTILE))):
        assert "[bold red]" in line
        assert {unicodedata.category(one) for one in line}.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn"})
        assert len(line) < 600


def test_lines_tell_an_engine_s_loss_its_return_and_that_it_is_given_up() -> None:
    assert lines(
        engine_up("a"),
        engine_up("b"),
        sample(use("a"), use("b")),
        engine_down("a", cause="killed\nlast words", requeued=3),
        engine_up("a", starts=2, start_s=12.34),
        engine_down("b", cause="no memory", requeued=0, given_up=True),
    ) == [
        "engine=a state=lost requeued=3 cause=killed⏎last words",
        "engine=a state=serving starts=2 s=12.3",
        "engine=b state=given_up requeued=0 cause=no memory",
    ]


def test_lines_tell_an_engine_that_first_serves_when_the_run_is_at_work() -> None:
    assert lines(engine_up("a"), began(), engine_up("b")) == ["engine=b state=serving starts=1 s=2.5"]
