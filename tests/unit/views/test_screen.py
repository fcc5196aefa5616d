"""Rows fit their screen, whatever its size and whatever stands in them."""

from dataclasses import replace

import pytest
from rich.cells import cell_len
from support.hostile import HOSTILE
from support.live import NOW, busy_state, view_of

from runner.views.cells import Row
from runner.views.live_parts import ErrorClass, ErrorNote
from runner.views.live_state import LiveState
from runner.views.panels import ASCII_GLYPHS
from runner.views.phases import Phase, PhaseState
from runner.views.screen import PARKING_ROWS, UNKNOWN_ROWS, Size, compose


def text_of(rows: list[Row]) -> list[str]:
    lines = []
    for row in rows:
        line = ""
        for cell in row:
            line = line.ljust(cell.column) + cell.text
        lines.append(line)
    return lines


def heads(rows: list[Row]) -> list[str]:
    return [line.split("  ")[0] for line in text_of(rows) if line]


@pytest.mark.parametrize("columns", [80, 100, 112, 160, 250])
@pytest.mark.parametrize("rows", [24, 30, 40, 60])
@pytest.mark.parametrize(
    "text", ["echo 1", HOSTILE["wide"], HOSTILE["emoji"]], ids=["plain", "wide", "emoji"]
)
@pytest.mark.parametrize("running", [0, 3, 128])
def test_a_frame_fits_its_terminal(columns: int, rows: int, text: str, running: int) -> None:
    view = view_of(
        busy_state(running=running, engines=8, text=text, ids=text[:8]) if running else LiveState()
    )

    found = compose(view, Size(columns, rows))

    assert len(found) <= rows - PARKING_ROWS
    for row in found:
        ends = [cell.column + cell_len(cell.text) for cell in row]
        begins = [*(cell.column for cell in row[1:]), columns - 1]
        assert all(end <= begin for end, begin in zip(ends, begins, strict=False))


@pytest.mark.parametrize("rows", [24, 30, 40, 60])
def test_running_trajectories_are_seen_on_every_screen(rows: int) -> None:
    found = text_of(compose(view_of(busy_state(running=50, engines=8)), Size(120, rows)))

    assert sum("/50 " in line for line in found) >= 3
    assert found[-1].strip().endswith("more")


def test_on_24_rows_of_unknown_size_the_most_important_is_seen() -> None:
    seen = text_of(compose(view_of(busy_state(running=50, engines=8)), None)[:20])

    assert [line for line in seen if line.startswith(("dapo", "aime"))]
    for label in ("Recount", "ended", "engines", "sandbox", "watch", "last ended", "running 50"):
        assert [line for line in seen if line.startswith(label)], label


def test_without_a_size_a_frame_has_a_greatest_one() -> None:
    found = compose(view_of(busy_state(running=500, engines=64)), None)

    assert len(found) <= UNKNOWN_ROWS
    assert max(cell.column + len(cell.text) for row in found for cell in row) <= 200


def test_what_is_fixed_stands_within_80_columns_of_a_terminal_of_unknown_width() -> None:
    found = compose(view_of(busy_state()), None)
    free_text = ("engines", "sandbox", "watch", "journal", "running", "!", "✓", "✗", "  ")

    for line in text_of(found):
        assert len(line) <= 80 or line.startswith(free_text)


def test_panels_come_in_the_order_of_their_importance() -> None:
    found = heads(compose(view_of(busy_state(running=5)), Size(120, 60)))
    order = ["Recount", "data set", "ended", "engines", "sandbox", "engine", "last ended", "last errors"]

    assert [head for head in found if head in order] == order
    assert found.index("last errors") < found.index("running 5")


def test_before_a_run_begins_its_phase_is_all_there_is() -> None:
    phase = PhaseState(
        Phase.FETCHING, NOW - 65, "model-00001.safetensors", 3 * 2**30, 8 * 2**30, in_bytes=True
    )
    found = text_of(compose(view_of(LiveState(), phase=phase), Size(100, 30)))

    assert "fetching" in found[0]
    assert "1:05" in found[0]
    assert "38 %  3.0 GiB of 8.0 GiB  model-00001.safetensors" in found[1]
    assert not [line for line in found if line.startswith(("data set", "running"))]


def test_a_phase_without_measure_shows_what_it_is_at() -> None:
    phase = PhaseState(Phase.STARTING, NOW, "engines that serve: 2")
    found = text_of(compose(view_of(LiveState(), phase=phase), Size(100, 30)))

    assert found[1] == "engines that serve: 2"


def test_figures_of_an_engine_stand_in_its_row() -> None:
    found = text_of(compose(view_of(busy_state()), Size(120, 60)))

    (row,) = (line for line in found if line.startswith("engine-1 "))
    assert row.split()[:8] == ["engine-1", "serving", "9", row.split()[3], "40", "%", "71.0/80.0", "97"]


def test_a_data_set_s_row_has_mean_interval_rate_and_time_left() -> None:
    found = text_of(compose(view_of(busy_state()), Size(120, 60)))

    (row,) = (line for line in found if line.startswith("dapo "))
    assert "15/200" in row
    assert "0.000-0.204" in row
    assert "/min" in row
    assert "~" in row


def test_errors_of_the_log_stand_among_the_others() -> None:
    note = ErrorNote(NOW, ErrorClass.LOG, "", "ERROR something broke")
    view = replace(view_of(busy_state()), log_errors=(note,), log_name="runner.log")
    found = text_of(compose(view, Size(120, 60)))

    place = next(number for number, line in enumerate(found) if line.startswith("last errors"))
    assert "runner.log" in found[place]
    assert "ERROR something broke" in found[place + 1]


def test_signs_beyond_ascii_can_be_done_without() -> None:
    view = replace(view_of(busy_state()), glyphs=ASCII_GLYPHS)

    assert "".join(text_of(compose(view, Size(80, 24)))).replace("…", "").isascii()


def test_before_a_run_begins_the_frame_says_what_it_will_be_able_to_tell_and_not_any_more_behind() -> None:
    phase = PhaseState(Phase.STARTING, NOW, "engines")
    before = replace(view_of(LiveState()), phase=phase, briefing=("what it can tell", "  set   0.05"))
    rows = text_of(compose(before, Size(100, 30)))
    assert "  set   0.05" in rows
    assert rows.index("what it can tell") < rows.index("  set   0.05")

    running = replace(view_of(busy_state()), briefing=("what it can tell",))
    assert "what it can tell" not in text_of(compose(running, Size(100, 30)))
