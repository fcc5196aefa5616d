"""Text that a model wrote, made harmless to show."""

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.clean import NEWLINE_SIGN, REPLACEMENT, clean_text

BOX = REPLACEMENT
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain é 😀 中", "plain é 😀 中"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b[?1049h", ""),
        ("\x1b]8;;http://evil/\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]8;;http://evil/\x07click\x1b]8;;\x07", "click"),
        ("\x1b]52;c;cm0gLXJm\x07after", "after"),
        ("\x1b]0;title\x9cafter", "after"),
        ("\x1b]52;c;the rest stays", "52;c;the rest stays"),
        ("\x9d52;c;the rest stays", f"{BOX}52;c;the rest stays"),
        ("\x1bPq#0;2;0;0;0\x1b\\after", "after"),
        ("\x1b_apc\x1b\\after", "after"),
        ("\x1bcafter", "after"),
        ("\x1b(0lqk", "lqk"),
        ("\x9b31mred", "red"),
        ("\x9d52;c;x\x9cafter", "after"),
        ("\x1b\x1b[0m[31mtwice", "[31mtwice"),
        ("lonely \x1b", "lonely "),
        ("\x00\x07\x08\x7f\x85", BOX * 5),
        ("over\rwritten", f"over{BOX}written"),
        ("\u202eesrever\u202c", f"{BOX}esrever{BOX}"),
        ("\u2066a\u2069\u200b\u200d\ufeff", f"{BOX}a{BOX}{BOX}{BOX}{BOX}"),
        ("\ud800\udfff", BOX * 2),
        ("\U000e0041", BOX),
        ("\ue000\U0010ffff", BOX * 2),
        ("\u2028\u2029", BOX * 2),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 50 + "x\u0302", "e\u0301x\u0302"),
        ("a\tb", "a    b"),
    ],
)
def test_what_could_act_on_a_terminal_is_gone(written: str, shown: str) -> None:
    assert clean_text(written, keep_lines=True) == shown


def test_line_ends_are_kept_or_shown_as_a_sign() -> None:
    assert clean_text("a\nb", keep_lines=True) == "a\nb"
    assert clean_text("a\nb", keep_lines=False) == f"a{NEWLINE_SIGN}b"


def test_text_beyond_the_limit_is_cut_with_a_sign() -> None:
    assert clean_text("abcdef", keep_lines=True, limit_chars=3) == "abc…"
    assert clean_text("abc", keep_lines=True, limit_chars=3) == "abc"


@given(ANY_TEXT, st.booleans())
def test_nothing_that_is_left_controls_formats_or_fails_to_encode(text: str, keep_lines: bool) -> None:
    shown = clean_text(text, keep_lines=keep_lines)

    shown.encode("utf-8")
    left = {unicodedata.category(character) for character in shown.replace("\n", "")}
    assert left.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
    assert keep_lines or "\n" not in shown


@given(ANY_TEXT)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = clean_text(text, keep_lines=True)

    assert clean_text(once, keep_lines=True) == once


FLOODS = [
    *(
        "\x1b[",
        "\x1b]",
        "\x1b[0",
        "\x1b[0 ",
        "\x9b",
        "\x9d",
        "\x1b",
        "\x1b ",
        "\u0301",
        "\x00",
        "a",
        "\ud800",
    ),
    *("\x1b[0;", "\x1bP\x1b", "`", "\x90", "\x9f", "\x9da", "\x1b]a"),
]


@pytest.mark.parametrize("unit", FLOODS)
@pytest.mark.parametrize("prefix", ["", "\x1b[", "\x1b]", "\x1b"])
def test_a_line_of_200_kilobytes_takes_time_in_proportion(prefix: str, unit: str) -> None:
    line = prefix + unit * (200_000 // len(unit))

    started = time.process_time()
    clean_text(line, keep_lines=False)

    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("unit", ["0", " ", "0 "])
def test_an_unended_escape_sequence_of_200_kilobytes_takes_time_in_proportion(unit: str) -> None:
    started = time.process_time()
    clean_text("\x1b[" + unit * 200_000, keep_lines=False)

    assert time.process_time() - started < 2.0


@given(st.text(st.sampled_from("ab \t\n\u0301\u0302\u0303é\x00\x1b[m\ud800\u202e中")))
def test_text_is_cleaned_as_if_character_by_character(text: str) -> None:
    """Runs of plain text are skipped for speed; that must not show."""
    without_escapes = clean_text(text, keep_lines=True)

    assert clean_text(without_escapes, keep_lines=True) == without_escapes
    for before, after in pairwise(without_escapes):
        assert not (unicodedata.category(before)[0] == unicodedata.category(after)[0] == "M")
    assert set(without_escapes) <= set("ab \n\u0301\u0302\u0303é中[m") | {REPLACEMENT}
