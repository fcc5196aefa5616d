"""The viewer: what it follows, a trajectory's page, its panels, and that it disturbs nothing."""

import pytest
from support.engine_events import engine_down, engine_up, sample, use
from support.events import began, ended, run_started, terminated, turn
from support.watched import STARTED_AT, Journal, Viewer, Watch, bash_turn, solved
from watched_runs import MANY, small_run

from runner.events import EndReason
from runner.views.watch.app import WatchApp
from runner.views.watch.help_screen import HelpScreen
from runner.views.watch.lines_scroll import LinesScroll
from runner.views.watch.rows import Outcome
from runner.views.watch.trajectory_screen import TrajectoryScreen

pytestmark = pytest.mark.anyio


async def test_what_runs_stands_first_and_every_outcome_is_counted(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("1 trajectories 6", "sleep 9")

        assert viewer.problems == ["p4", "p0", "p1", "p2", "p3", "p5"]
        screen = viewer.screen()
        assert "3/6" in screen
        assert "mean 0.333 ~[" in screen
        for told in ("running 1", "right 1", "wrong 1", "limit 1", "unfinished 1", "waiting 1", "41 ≠ 42"):
            assert told in screen


async def test_a_run_is_followed_while_it_grows_also_across_a_torn_line(
    journal: Journal, watch: Watch
) -> None:
    async with watch() as viewer:
        await viewer.until_shown("journal.jsonl is waited for")

        journal.write(run_started("p0", "p1"))
        await viewer.until_shown("waiting 2")

        line = journal.line(began("p0"))
        journal.write_bytes(line[:40])
        await viewer.until_shown("a line is being written (40 bytes)")
        assert "waiting 2" in viewer.screen()

        journal.write_bytes(line[40:])
        await viewer.until_shown("running 1")

        journal.write(bash_turn("p0", "echo now"))
        await viewer.until_shown("echo now")

        journal.write(terminated("p0"), ended(EndReason.INTERRUPTED))
        await viewer.until_shown("right 1", "interrupted", "42 = 42")


async def test_the_viewer_looks_by_itself(journal: Journal) -> None:
    app = WatchApp(journal.path, clock=lambda: journal.now)
    async with app.run_test(size=(120, 35)) as pilot:
        viewer = Viewer(app, pilot)
        await viewer.until_shown("is waited for", looking=False)
        journal.write(run_started("p0"), began("p0"))
        await viewer.until_shown("running 1", looking=False)
        journal.write(bash_turn("p0", "echo on"))
        await viewer.until_shown("echo on", looking=False)


async def test_only_changed_rows_are_drawn_again(journal: Journal, watch: Watch) -> None:
    ids = [f"p{number:05}" for number in range(MANY)]
    journal.write(run_started(*ids), *(began(one, row=row) for row, one in enumerate(ids)))
    async with watch() as viewer:
        await viewer.until(lambda: viewer.app.index.tallies["set"][Outcome.RUNNING] == MANY)
        await viewer.until_shown("p00000", f"running {MANY}")
        assert viewer.table.rows_drawn < MANY / 10, "rows nobody sees are drawn"
        drawn = viewer.table.rows_drawn

        at = journal.now
        journal.write(bash_turn(ids[3], "echo seen"), bash_turn(ids[-1], "echo far away"))
        journal.now = at  # what runs would be drawn again for its time alone
        await viewer.until_shown("echo seen")

        assert viewer.table.rows_drawn - drawn <= 2


async def test_a_trajectory_opens_turn_by_turn_with_its_score_and_why(journal: Journal, watch: Watch) -> None:
    journal.write(
        run_started("p0"),
        began("p0"),
        bash_turn("p0", "echo 41", observation="41\n\n[exit_code] 0", seeds=(7, 104), cached_tokens=2),
        turn("Final answer: 41", number=1, observation=None, seeds=(104,)),
        terminated("p0", score=0.0, prediction="41"),
    )
    async with watch((120, 50)) as viewer:
        await viewer.until_shown("wrong 1")
        await viewer.press("enter")
        await viewer.until_shown(
            "set/p0:sample00",
            "How many?",
            "gold answer",
            "0 by exact_fallback",
            "ended by final_answer",
            "turn 1 · action",
            "I try echo 41",
            "$ echo 41",
            "[exit_code] 0",
            "3 tokens in (2 cached), 2 out, stop · seed 7 then 104 · engine fake",
            "generated 0.1s",
            "turn 2",
        )
        await viewer.press("escape")
        assert viewer.table.has_focus


async def test_an_open_trajectory_goes_on_and_ends_before_the_reader_s_eyes(
    journal: Journal, watch: Watch
) -> None:
    journal.write(run_started("p0"), began("p0"))
    async with watch((120, 40)) as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter")
        await viewer.until_shown("the next turn appears here")

        journal.write(bash_turn("p0", "echo new"))
        await viewer.until_shown("$ echo new")
        journal.write(terminated("p0"))
        await viewer.until_shown("ended: final_answer, score 1")


async def test_the_next_and_previous_trajectory_of_the_table_are_walked_through(
    journal: Journal, watch: Watch
) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter")
        await viewer.until_shown("set/p4:sample00")
        await viewer.press("n")
        await viewer.until_shown("set/p0:sample00", "$ echo first")
        await viewer.press("p", "p")
        await viewer.until_shown("set/p4:sample00")
        await viewer.press("n", "n", "n", "n", "n", "n", "n")
        await viewer.until_shown("set/p5:sample00", "not started yet")


async def test_a_long_text_is_cut_until_all_of_it_is_asked_for(journal: Journal, watch: Watch) -> None:
    text = "\n".join(f"line {number}" for number in range(3000))
    journal.write(run_started("p0"), began("p0"), turn(text))
    async with watch((120, 50)) as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter")
        await viewer.until_shown("line 13", "3,000 lines; press a for all of it]")
        page = viewer.app.screen.query_one(LinesScroll)
        assert page.virtual_size.height < 50

        await viewer.press("a")
        await viewer.until(lambda: page.virtual_size.height > 3000)
        await viewer.press("end")
        await viewer.until_shown("the next turn appears here")

        await viewer.press("a")
        await viewer.until_shown("press a for all of it]")


async def test_turns_are_jumped_between(journal: Journal, watch: Watch) -> None:
    turns = [turn(f"text {number}\n" * 9, number=number) for number in range(9)]
    journal.write(run_started("p0"), began("p0"), *turns)
    async with watch((80, 24)) as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter")
        await viewer.until_shown("turn 1")
        await viewer.press(*["right_square_bracket"] * 4)
        await viewer.until_shown("turn 4")
        assert "turn 3" not in viewer.screen()
        await viewer.press("left_square_bracket")
        await viewer.until_shown("turn 3")


async def test_engines_and_errors_have_their_panels(journal: Journal, watch: Watch) -> None:
    stats = {"waiting": 3, "kv_cache_usage": 0.875, "gpu_memory_used_bytes": 2**36}
    journal.write(*small_run(), engine_up("e0"), engine_down("e0", cause="out of memory"))
    journal.write(sample(use("e1", running=7, busy_s=2.0, batch_s=8.0, serving_s=4.0, stats=stats), queued=5))
    async with watch() as viewer:
        await viewer.until_shown("2 engines 3", "3 errors 3")
        await viewer.press("2")
        await viewer.until_shown(
            "e0 · lost",
            "out of memory",
            "e1 · serving",
            "batch now 7, mean 4.0",
            "KV cache 88%",
            "5 turns wait",
        )
        await viewer.press("3")
        await viewer.until_shown(
            "retry 1, unfinished 1, engine lost 1", "sandbox gone again", "set/p3:sample00"
        )
        await viewer.press("1")
        assert viewer.table.has_focus


async def test_damage_is_shown_with_file_and_line_and_the_rest_goes_on(
    journal: Journal, watch: Watch
) -> None:
    journal.write(run_started("p0", "p1"))
    journal.write_bytes(b'{"type":"turn"}\nrubbish\n')
    journal.write(*solved("p0", 0))
    async with watch() as viewer:
        await viewer.until_shown("right 1", "journal.jsonl:3: damaged", "3 errors 2")
        await viewer.press("3")
        await viewer.until_shown("journal.jsonl:2", "no event of this journal version")


async def test_a_journal_that_is_replaced_is_read_anew(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("1 trajectories 6")
        await viewer.press("slash", *"other", "enter")

        other = Journal(journal.path.with_name("new"))
        other.write(run_started("other1", "other2", run_id="another"))
        other.path.replace(journal.path)

        await viewer.until_shown("another", "read anew", "1 trajectories 2")
        assert viewer.problems == ["other1", "other2"]


async def test_the_journal_may_vanish_while_a_trajectory_is_opened(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        journal.path.unlink()
        await viewer.press("enter")
        await viewer.until_shown("not readable: No such file")
        await viewer.press("escape")
        await viewer.until_shown("is gone", "running 1")


async def test_a_silent_run_is_told(journal: Journal, watch: Watch) -> None:
    journal.write(run_started("p0"), began("p0"))
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        assert "silent" not in viewer.screen()
        journal.now += 200
        await viewer.until_shown("silent for 3m20s", "running 1")


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (120, 35), (250, 60), (20, 5)])
async def test_every_page_fits_every_terminal(journal: Journal, watch: Watch, size: tuple[int, int]) -> None:
    journal.write(*small_run(), ended())
    async with watch(size) as viewer:
        await viewer.until(lambda: len(viewer.problems) == 6)
        for keys in (("2",), ("3",), ("1",), ("question_mark",), ("escape", "enter"), ("a",), ("escape",)):
            await viewer.press(*keys)
            assert {len(line) for line in viewer.screen().splitlines()} == {size[0]}
        if size[0] >= 80:
            assert "? help  q quit" in viewer.screen()


async def test_a_resize_keeps_what_was_open(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch((120, 35)) as viewer:
        await viewer.until_shown("termination", "running 1")
        await viewer.pilot.resize_terminal(80, 24)
        await viewer.until(lambda: "termination" not in viewer.screen())
        assert "sleep 9" in viewer.screen()
        await viewer.press("enter")
        await viewer.pilot.resize_terminal(60, 20)
        await viewer.until_shown("set/p4:sample00", "question")


async def test_help_opens_once_and_over_anything(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("enter", "question_mark")
        await viewer.until_shown("all of long texts, or cut")
        await viewer.press("question_mark")
        assert not isinstance(viewer.app.screen, HelpScreen)
        assert isinstance(viewer.app.screen, TrajectoryScreen)


@pytest.mark.parametrize(
    "keys", [("q",), ("ctrl+c",), ("enter", "q"), ("slash", "ctrl+c"), ("question_mark", "q")]
)
async def test_q_and_ctrl_c_end_the_viewer_and_leave_the_journal_alone(
    journal: Journal, watch: Watch, keys: tuple[str, ...]
) -> None:
    journal.write(*small_run())
    content, status = journal.path.read_bytes(), journal.path.stat()
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.press(*keys)
        await viewer.until(lambda: not viewer.app.is_running or viewer.app._exit)
        assert viewer.app.return_code == 0

    assert journal.path.read_bytes() == content
    assert journal.path.stat().st_mtime_ns == status.st_mtime_ns
    assert [one.name for one in journal.path.parent.iterdir()] == ["journal.jsonl"]


async def test_elapsed_times_of_what_runs_go_on(journal: Journal, watch: Watch) -> None:
    journal.write(run_started("p0"), began("p0"))
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        assert journal.now == STARTED_AT + 2
        journal.now += 30
        await viewer.until_shown("30.0s")
