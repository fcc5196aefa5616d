"""Cells hold their width, and cost what is shown of a text, not what was written."""

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.hostile import HOSTILE, harmful_in

from runner import clean
from runner.views.cells import Cell, RowMaker, Tone, fit, shown

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT, st.integers(0, 40))
def test_shown_text_is_harmless_one_line_and_no_wider_than_its_place(text: str, width: int) -> None:
    found = shown(text, width)

    assert cell_len(found) <= width
    assert harmful_in(found) == set()
    assert "\n" not in found


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_hostile_is_left_of_known_attacks(name: str) -> None:
    found = shown(HOSTILE[name], 200)

    assert harmful_in(found) == set()
    assert cell_len(found) <= 200


def test_markup_and_emoji_codes_are_shown_as_they_are_written() -> None:
    for name in ("markup", "emoji code", "percent"):
        assert shown(HOSTILE[name], 200) == HOSTILE[name]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("中文字", 6, "中文字"),
        ("中文字", 5, "中文…"),
        ("中文字", 4, "中…"),
        ("a中", 2, "a…"),
        ("abc", 0, ""),
        ("", 5, ""),
    ],
)
def test_what_is_too_wide_is_cut_with_a_sign(text: str, width: int, expected: str) -> None:
    assert fit(text, width) == expected


@pytest.fixture
def categories_asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Count how many characters are looked at one by one."""
    asked, category = 0, unicodedata.category

    def counted(character: str) -> str:
        nonlocal asked
        asked += 1
        return category(character)

    def count(text: str) -> int:
        nonlocal asked
        asked = 0
        with monkeypatch.context() as patch:
            patch.setattr(clean.unicodedata, "category", counted)
            shown(text, 100)
        return asked

    return count


@pytest.mark.parametrize("unit", ["\u0301", "\x00", "中", "\x1b[31m", "\x1b]52;", "\u202e", "\ud800", "👍"])
def test_a_megabyte_is_no_more_work_than_a_kilobyte(
    categories_asked: Callable[[str], int], unit: str
) -> None:
    small, large = (categories_asked(unit * (size // len(unit))) for size in (1_000, 1_000_000))

    assert large == small <= 300


def test_cells_stand_where_their_widths_put_them() -> None:
    row = RowMaker(20).add("ab", 5).add_right("7", 3, Tone.GOOD).gap(2).add("the rest is cut").row()

    assert row == (Cell(0, "ab"), Cell(7, "7", Tone.GOOD), Cell(10, "the rest …"))


def test_a_full_row_takes_nothing_more() -> None:
    maker = RowMaker(4).add("abcdef")

    assert maker.add("x").add("y", 3).add_right("z", 2).row() == (Cell(0, "abc…"),)
