"""The viewer's table: sorted, filtered, searched and walked."""

import pytest
from support.events import began, retried, run_started, terminated
from support.watched import Journal, Watch, bash_turn, solved
from textual.widgets import Input
from watched_runs import MANY, small_run

from runner.events import DatasetRecord, ProblemRecord
from runner.views.watch.order import Column
from runner.views.watch.rows import Outcome

pytestmark = pytest.mark.anyio


async def test_ten_thousand_rows_are_sorted_filtered_and_walked(journal: Journal, watch: Watch) -> None:
    ids = [f"p{number:05}" for number in range(MANY)]
    lines = [journal.line(run_started(*ids))]
    for row, one in enumerate(ids):
        lines += [journal.line(event) for event in solved(one, row, f"echo {row}", score=float(row % 4 > 0))]
    journal.write_bytes(b"".join(lines))
    async with watch() as viewer:
        await viewer.until_shown(f"{MANY}/{MANY}", "right 7500", "wrong 2500")

        await viewer.press("G")
        assert viewer.table.cursor_row is not None
        assert viewer.table.cursor_row.outcome is Outcome.WRONG
        await viewer.press("o", "o", "o")
        assert len(viewer.table.shown) == MANY // 4
        await viewer.press("slash", *"echo 9996", "enter")
        await viewer.until(lambda: viewer.problems == ["p09996"])
        assert viewer.table.rows_drawn < MANY / 10


async def test_rows_are_sorted_by_any_column_both_ways(journal: Journal, watch: Watch) -> None:
    journal.write(
        run_started("p0", "p1", "p2"),
        *solved("p0", 0, generated_tokens=500),
        *solved("p1", 1, generated_tokens=20),
        *solved("p2", 2, generated_tokens=3000),
    )
    async with watch() as viewer:
        await viewer.until_shown("right 3")
        seen = {}
        for _ in range(len(viewer.table.columns)):
            await viewer.press("s")
            seen[viewer.table.order.column] = viewer.problems
            assert "sorted by" in viewer.screen() or viewer.table.order.column is Column.OUTCOME
        assert set(seen) == set(Column) - {Column.DATASET}
        assert seen[Column.TOKENS] == ["p1", "p0", "p2"]

        while viewer.table.order.column is not Column.TOKENS:
            await viewer.press("S")
        await viewer.press("r")
        assert viewer.problems == ["p2", "p0", "p1"]

        await viewer.press("c")
        assert viewer.problems == ["p0", "p1", "p2"]


async def test_a_click_on_a_heading_sorts_and_on_the_cursor_s_row_opens(
    journal: Journal, watch: Watch
) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.pilot.click("#trajectories", offset=(15, 0))
        assert viewer.table.order.column is Column.PROBLEM

        await viewer.pilot.click("#trajectories", offset=(15, 3))
        assert viewer.table.cursor_row is not None
        assert viewer.table.cursor_row.key.problem_id == "p2"
        await viewer.pilot.click("#trajectories", offset=(15, 3))
        await viewer.until_shown("set/p2:sample00", "max_turns")


async def test_rows_are_filtered(journal: Journal, watch: Watch) -> None:
    everything = ["p4", "p0", "p1", "p2", "p3", "p5"]
    expected = {
        "o": ["p4"],
        "oo": ["p0"],
        "ooo": ["p1"],
        "oooo": ["p2"],
        "ooooo": ["p3"],
        "O": ["p5"],
        "t": ["p0", "p1"],
        "tt": ["p2"],
        "tto": [],
        "d": everything,
    }
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        for keys, problems in expected.items():
            await viewer.press(*keys)
            assert viewer.problems == problems, keys
            assert f"{len(problems)} of 6" in viewer.screen()
            await viewer.press("c")
            assert viewer.problems == everything
            assert " of 6" not in viewer.screen()


async def test_one_data_set_alone_is_shown(journal: Journal, watch: Watch) -> None:
    datasets = tuple(
        DatasetRecord(
            name=name,
            path="",
            sha256="",
            base_seed=1,
            problems=(ProblemRecord(id=f"{name}-1", row_index=0, question="?", answer="1"),),
        )
        for name in ("first", "second")
    )
    journal.write(run_started(datasets=datasets))
    async with watch() as viewer:
        await viewer.until_shown("first-1", "second-1", "data set")
        await viewer.press("d", "d")
        assert viewer.problems == ["second-1"]
        assert "data set=second" in viewer.screen()
        await viewer.press("D")
        assert viewer.problems == ["first-1"]


async def test_text_is_found_in_ids_questions_answers_and_all_commands(
    journal: Journal, watch: Watch
) -> None:
    expected = {
        "PRINT(41)": ["p1"],
        "how many": ["p4", "p5", "p0", "p1", "p2", "p3"],
        "p3": ["p3"],
        "41": ["p1"],
        "early": ["p4"],
        "abandoned": [],
        "nowhere": [],
        "ünï": ["p5"],
    }
    journal.write(*small_run(), bash_turn("p4", "echo early"), bash_turn("p4", "echo late", number=2))
    journal.write(began("p5", row=5), bash_turn("p5", "echo abandoned"), retried("p5"))
    journal.write(began("p5", row=5, attempt=2), bash_turn("p5", "echo ÜNÏ", attempt=2))
    journal.write(bash_turn("p5", "ls", attempt=2))
    async with watch() as viewer:
        await viewer.until_shown("running 2", "ls")
        find = viewer.app.query_one("#find", Input)
        for text, problems in expected.items():
            await viewer.press("slash")
            find.value = text
            await viewer.press("enter")
            search = viewer.table.filter.search
            assert search is not None
            await viewer.until(lambda search=search: search.searched_journal)  # type: ignore[misc]
            assert viewer.problems == problems, text
            assert f"text={text}" in viewer.screen()

        await viewer.press("slash")
        find.value = ""
        await viewer.press("enter")
        assert len(viewer.problems) == 6


async def test_text_is_found_in_commands_that_come_later(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("slash", *"needle", "enter")
        assert viewer.problems == []

        journal.write(bash_turn("p4", "grep needle hay"), bash_turn("p4", "ls", number=2))
        await viewer.until(lambda: viewer.problems == ["p4"])


async def test_letters_typed_into_the_search_are_no_commands(journal: Journal, watch: Watch) -> None:
    journal.write(*small_run())
    async with watch() as viewer:
        await viewer.until_shown("running 1")
        await viewer.press("slash", *"qsrd?", "escape")

        assert viewer.app.is_running
        assert viewer.table.filter.lets_all_pass
        assert viewer.table.has_focus


async def test_the_cursor_stays_on_its_trajectory_when_rows_move(journal: Journal, watch: Watch) -> None:
    ids = [f"p{number:02}" for number in range(60)]
    journal.write(run_started(*ids), *(began(one, row=row) for row, one in enumerate(ids)))
    async with watch((80, 24)) as viewer:
        await viewer.until_shown("running 60")
        await viewer.press(*["down"] * 30)
        assert viewer.table.cursor_row is not None
        assert viewer.table.cursor_row.key.problem_id == "p30"

        journal.write(*(terminated(one) for one in ids[:20]))
        await viewer.until_shown("right 20")

        assert viewer.table.cursor_row.key.problem_id == "p30"
        assert "> running    p30" in viewer.screen()
        journal.write(*(terminated(one) for one in ids[20:]))
        await viewer.until_shown("right 60", "> right      p30")
