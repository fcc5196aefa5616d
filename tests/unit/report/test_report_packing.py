"""Transcripts fit into the page: whole where they can be, cut in the middle where not, and that is said."""

from pathlib import Path

from support.report_page import Page
from support.report_runs import Wanted, write_run

from runner.journal import read_state
from runner.report import write_report
from runner.report.packing import LEAST_CHARS, pack
from runner.report.transcripts import Clipping, text_lengths
from runner.state import RunState


def state_of(tmp_path: Path, words_a_turn: int = 200) -> RunState:
    """The state of a small run with long texts."""
    run_dir = write_run(tmp_path / "run", Wanted(problems={"dapo": 10}, samples=2, words_a_turn=words_a_turn))
    return read_state(run_dir / "journal.jsonl")


def test_what_fits_is_whole(tmp_path: Path) -> None:
    packed = pack(state_of(tmp_path), {})
    assert packed.limit_chars is None
    assert packed.left_out_chars == packed.without_turns == 0


def test_what_does_not_fit_is_cut_until_it_does(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    whole = pack(state, {}).size_bytes

    packed = pack(state, {}, whole // 2)

    assert whole // 4 < packed.size_bytes <= whole // 2
    assert packed.limit_chars is not None
    assert packed.limit_chars < max(text_lengths(state))
    assert packed.left_out_chars > 0
    assert packed.without_turns == 0


def test_where_even_short_texts_are_too_much_the_last_trajectories_have_no_turns(tmp_path: Path) -> None:
    packed = pack(state_of(tmp_path), {}, 100)
    assert packed.limit_chars == LEAST_CHARS
    assert packed.without_turns == 20
    assert packed.parts == ()


def test_a_cut_text_keeps_both_ends_and_says_what_is_missing() -> None:
    text, left_out = Clipping(300).apply("a" * 500 + "b" * 500)
    assert left_out == 700
    assert text == "a" * 200 + "\n[… 700 characters left out …]\n" + "b" * 100


def test_a_page_with_cut_texts_says_so(tmp_path: Path, monkeypatch: object) -> None:
    run_dir = write_run(tmp_path / "run", Wanted(problems={"dapo": 10}, samples=2, words_a_turn=200))
    from runner.report import packing, write  # noqa: PLC0415

    write.pack = lambda state, scores: packing.pack(state, scores, 60_000)  # type: ignore[attr-defined]
    try:
        page = Page.of(write_report(run_dir))
    finally:
        write.pack = packing.pack  # type: ignore[attr-defined]

    assert "characters are cut in their middle" in page.text
    cut = [row for row in page.index["rows"] if row.get("left", 0) > 0]
    assert cut
    assert any("characters left out …]" in turn["assistant"] for turn in page.turns(cut[0]))
