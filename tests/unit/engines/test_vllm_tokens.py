"""A conversation tokenized in pieces is what it is whole, and costs what is new in it."""

from dataclasses import dataclass
from typing import Any

import pytest

from runner.engines.vllm.tokens import SegmentedTokenizer, WholeTokenizer


@dataclass(frozen=True)
class Added:
    content: str
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


class FakeTokenizer:
    """A token is a character but for two special ones; `prefix` is put before every text, as some do."""

    def __init__(self, *, prefix: str = "", **flags: bool) -> None:
        self.added_tokens_decoder = {900: Added("<s>", **flags), 901: Added("<se>", **flags)}
        self.prefix = prefix
        self.read: list[str] = []

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        self.read.append(text)
        ids: list[int] = []
        rest = self.prefix + text
        while rest:
            for token_id, added in self.added_tokens_decoder.items():
                if rest.startswith(added.content):
                    ids.append(token_id)
                    rest = rest[len(added.content) :]
                    break
            else:
                ids.append(ord(rest[0]))
                rest = rest[1:]
        return {"input_ids": ids}


LONG = [f"message {number} " * 20 for number in range(4)]


def conversation(messages: int) -> str:
    return "".join(f"<s>{text}<se>\n" for text in LONG[:messages]) + "<s>"


def test_pieces_are_the_whole() -> None:
    for text in ("", "<s>", "<se><s>x", "no special", conversation(4), conversation(4) + "tail"):
        assert SegmentedTokenizer(FakeTokenizer()).encode(text) == WholeTokenizer(FakeTokenizer()).encode(
            text
        )


def test_what_was_read_once_is_not_read_again() -> None:
    tokenizer = FakeTokenizer()
    pieces = SegmentedTokenizer(tokenizer)
    pieces.encode(conversation(3))
    del tokenizer.read[:]

    again = pieces.encode(conversation(4))

    assert [text for text in tokenizer.read if len(text) > 1] == [LONG[3]]
    assert again == WholeTokenizer(FakeTokenizer()).encode(conversation(4))


def test_what_is_kept_is_bounded_and_the_oldest_goes() -> None:
    tokenizer = FakeTokenizer()
    pieces = SegmentedTokenizer(tokenizer, kept_tokens=2 * len(LONG[0]))
    for text in (LONG[0], LONG[1], LONG[0], LONG[2], LONG[0], LONG[1]):
        pieces.encode(text)

    assert tokenizer.read == [LONG[0], LONG[1], LONG[2], LONG[1]]


def test_a_tokenizer_that_treats_a_beginning_otherwise_is_found_out() -> None:
    assert SegmentedTokenizer(FakeTokenizer()).agrees([conversation(4)])
    assert not SegmentedTokenizer(FakeTokenizer(prefix="_")).agrees([conversation(4)])


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word", "normalized"])
def test_special_tokens_that_take_something_along_are_no_place_to_cut(flag: str) -> None:
    assert not SegmentedTokenizer(FakeTokenizer(**{flag: True})).agrees([conversation(2)])


def test_a_lone_surrogate_is_a_piece_like_others() -> None:
    text = "\ud800" * 100

    assert SegmentedTokenizer(FakeTokenizer()).encode(text) == WholeTokenizer(FakeTokenizer()).encode(text)
