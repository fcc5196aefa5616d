"""What a terminal shows when frames are fed to it as Compose prints them, tried on an emulator."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import HOSTILE, harmful_in, without_our_codes
from support.live import NOW, Screen, busy_state, view_of

from runner.views.cells import Row, RowMaker, Tone
from runner.views.frames import REDRAW_S, FrameWriter
from runner.views.live_state import LiveState
from runner.views.screen import Size, compose

SIZES = [(80, 24), (120, 35), (200, 50), (250, 60)]


def drawn(state: LiveState, columns: int, rows: int, *, sized: bool, color: bool = True) -> Screen:
    size = Size(columns, rows) if sized else None
    screen = Screen(columns, rows, prefix=b"" if sized else b"eval-1  | ")
    screen.feed(FrameWriter(color=color).frame(compose(view_of(state), size), size, 0.0))
    return screen


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_without_a_size_a_frame_stands_right_under_a_prefix(columns: int, rows: int) -> None:
    screen = drawn(busy_state(), columns, rows, sized=False)

    assert screen.rows[0].startswith("Recount  final4-20261202")
    assert screen.rows[1].startswith("█")
    assert screen.rows[4].startswith("dapo ")
    assert screen.text.count("eval-1") == 0
    assert any(row.startswith("running 20 ") for row in screen.rows)
    # Compose's menu has the rows at the bottom; the next prefix is written there, and cleared again.
    assert screen.rows[-4:] == [""] * 4
    assert screen.cursor_row == rows - 3


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_with_a_size_every_row_is_used_and_nothing_is_cut_unsaid(columns: int, rows: int) -> None:
    screen = drawn(busy_state(running=100), columns, rows, sized=True)

    assert screen.rows[0].startswith("Recount  final4-20261202")
    assert screen.rows[-3].strip().endswith("more")
    assert screen.rows[-2:] == ["", ""]
    assert screen.cursor_row == rows - 1


@pytest.mark.parametrize("sized", [True, False])
def test_a_second_frame_under_the_prefix_shows_the_same_as_a_first(sized: bool) -> None:
    state, size = busy_state(), Size(120, 35) if sized else None
    screen, writer = Screen(120, 35, prefix=b"" if sized else b"eval-1  | "), FrameWriter(color=True)
    for second in range(5):
        view = replace(view_of(state), now=NOW + second)
        screen.feed(writer.frame(compose(view, size), size, 0.5 * second))

    fresh = Screen(120, 35, prefix=b"")
    fresh.feed(FrameWriter(color=True).frame(compose(replace(view_of(state), now=NOW + 4), size), size, 0.0))
    assert screen.rows == fresh.rows


def test_a_frame_is_one_line() -> None:
    writer = FrameWriter(color=True)
    for now in (0.0, 0.5, REDRAW_S):
        frame = writer.frame(compose(view_of(busy_state(text="a\nb")), None), None, now)
        assert frame == b"" or (frame.count(b"\n") == 1 and frame.endswith(b"\n"))


def test_what_did_not_change_is_not_written_again() -> None:
    state, writer = busy_state(running=40), FrameWriter(color=True)
    first = writer.frame(compose(view_of(state), None), None, 0.0)
    same = writer.frame(compose(view_of(state), None), None, 0.5)
    later = writer.frame(compose(replace(view_of(state), now=NOW + 1), None), None, 1.0)

    assert same == b""
    assert len(later) < len(first) / 3


def test_a_resize_that_nobody_told_of_is_healed() -> None:
    state, writer, screen = busy_state(), FrameWriter(color=True), Screen(200, 50)
    screen.feed(writer.frame(compose(view_of(state), None), None, 0.0))
    screen.resize(100, 30)
    screen.feed(b"junk of the terminal's own\n")
    screen.feed(writer.frame(compose(view_of(state), None), None, REDRAW_S))

    assert screen.rows[:26] == drawn(state, 100, 30, sized=False).rows[:26]


def test_a_resize_that_is_told_of_is_drawn_at_once() -> None:
    state, writer, screen = busy_state(), FrameWriter(color=True), Screen(200, 50, prefix=b"")
    screen.feed(writer.frame(compose(view_of(state), Size(200, 50)), Size(200, 50), 0.0))
    screen.resize(100, 30)
    screen.feed(writer.frame(compose(view_of(state), Size(100, 30)), Size(100, 30), 0.1))

    assert screen.rows == drawn(state, 100, 30, sized=True).rows


def test_compose_s_menu_disturbs_no_frame() -> None:
    """The menu stands in the last row, and clears everything below the cursor before each line."""
    state, writer, screen = busy_state(), FrameWriter(color=True), Screen(120, 35, prefix=b"")
    menu = b"\x1b7\x1b[35;1H\x1b[2Kw Enable Watch   d Detach\x1b8"
    for number in range(4):
        view = replace(view_of(state), now=NOW + number)
        screen.feed(b"\x1b[0J" + b"eval-1  | " + writer.frame(compose(view, None), None, 0.5 * number) + menu)

    assert screen.rows[-1] == "w Enable Watch   d Detach"
    assert "eval-1" not in "\n".join(screen.rows)
    assert screen.rows[0].startswith("Recount")


def test_what_stood_on_the_screen_can_be_scrolled_back_to() -> None:
    screen = Screen(80, 24, prefix=b"")
    screen.feed(b"what was there before\n")
    screen.feed(FrameWriter(color=True).frame(compose(view_of(busy_state()), None), None, 0.0))

    assert "what was there before" in screen.scrolled_out
    assert "what was there before" not in screen.rows


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
@pytest.mark.parametrize("sized", [True, False])
def test_lines_that_follow_stand_under_the_last_frame(columns: int, rows: int, sized: bool) -> None:
    size = Size(columns, rows) if sized else None
    screen, writer = Screen(columns, rows, prefix=b"" if sized else b"eval-1  | "), FrameWriter(color=True)
    screen.feed(writer.frame(compose(view_of(busy_state(running=3)), size), size, 0.0))
    screen.feed(writer.leave())
    screen.feed(b"stopping signal=SIGTERM\nended=interrupted\n")

    shown = "\n".join([*screen.scrolled_out, *screen.rows])
    assert "Recount  final4" in shown
    assert [row.removeprefix("eval-1  | ") for row in screen.rows if "=" in row] == [
        "stopping signal=SIGTERM",
        "ended=interrupted",
    ]
    assert writer.leave() == b""


def test_killed_behind_any_frame_the_terminal_is_as_it_was() -> None:
    screen = drawn(busy_state(), 80, 24, sized=False)
    screen.feed(b"a shell's prompt")

    assert screen.autowrap
    assert screen.rows[screen.cursor_row] == "eval-1  | a shell's prompt"
    frame = FrameWriter(color=True).frame(compose(view_of(busy_state()), None), None, 0.0)
    for undone, done in ((b"?2026h", b"?2026l"), (b"?7l", b"?7h")):
        assert frame.count(undone) == frame.count(done) == 1
    assert b"?25l" not in frame
    assert b"?1049h" not in frame


def test_without_colour_everything_is_still_said() -> None:
    plain, colored = (drawn(busy_state(), 120, 35, sized=True, color=color) for color in (False, True))

    assert plain.rows == colored.rows
    assert plain.colors == {"default"}
    assert {"green", "red"} <= colored.colors
    assert any(row.startswith("✓") for row in plain.rows)
    assert any(row.startswith("✗") for row in plain.rows)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("sized", [True, False])
def test_nothing_hostile_reaches_the_terminal(name: str, sized: bool) -> None:
    text = HOSTILE[name]
    state, size = busy_state(running=5, text=text, ids=text), Size(120, 35) if sized else None
    writer = FrameWriter(color=True)
    view = view_of(state, title=text, journal=text)
    frames = writer.frame(compose(view, size), size, 0.0)
    frames += writer.frame(compose(replace(view, now=NOW + 1), size), size, 0.5)

    assert harmful_in(without_our_codes(frames)) == set()
    screen = Screen(120, 35, prefix=b"")
    screen.feed(frames)
    assert screen.rows[0].startswith("Recount")
    assert any(row.startswith("running 5 ") for row in screen.rows)


@pytest.mark.parametrize("name", ["wide", "emoji", "jamo", "halfwidth", "combining flood"])
def test_columns_stay_aligned_however_wide_a_terminal_takes_an_id_to_be(name: str) -> None:
    state = busy_state(running=5, ids=HOSTILE[name][:60])
    screen = drawn(state, 120, 35, sized=True)
    (head,) = (row for row in screen.rows if row.startswith("running 5 "))
    column = head.index("  at ") + 2
    shown = {screen.cells(number, column, 5) for number, row in enumerate(screen.rows) if "/50 " in row}

    assert shown == {"model", "comma", "retry"}


ROWS = st.lists(
    st.lists(
        st.tuples(st.text("ab·✓中é", max_size=12), st.integers(1, 14), st.sampled_from(Tone), st.booleans()),
        max_size=4,
    ),
    max_size=6,
)


def rows_of(written: list[list[tuple[str, int, Tone, bool]]]) -> list[Row]:
    rows = []
    for cells in written:
        maker = RowMaker(60)
        for text, width, tone, right in cells:
            (maker.add_right if right else maker.add)(text, width, tone)
        rows.append(maker.row())
    return rows


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, min_size=2, max_size=4), st.booleans())
def test_changes_drawn_alone_show_what_a_whole_frame_shows(pictures: list, sized: bool) -> None:
    size = Size(60, 14) if sized else None
    screen, writer = Screen(60, 14), FrameWriter(color=True)
    for number, written in enumerate(pictures):
        screen.feed(writer.frame(rows_of(written), size, 0.1 * number))

    fresh = Screen(60, 14)
    fresh.feed(FrameWriter(color=True).frame(rows_of(pictures[-1]), size, 0.0))
    assert screen.rows[:8] == fresh.rows[:8]
