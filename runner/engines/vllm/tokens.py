"""Tokenizing a growing conversation without starting over at every turn.

A tokenizer cuts a text at its special tokens before anything else and then treats each piece by itself. A
chat template puts such tokens around every message, so what a message becomes can be kept: a turn then costs
its own new messages instead of the whole conversation. Whether a tokenizer is one for which that is exact is
tried (`SegmentedTokenizer.agrees`), and otherwise the text is tokenized whole.
"""

import re
from array import array
from collections import OrderedDict
from hashlib import blake2b

from typing_extensions import override

from runner.engines.vllm.wire import PACKED_TYPE, Foreign

KEPT_TOKENS = 16_000_000
"""Of all pieces together: 64 MB, some hundred long conversations."""
_KEPT_FROM_CHARS = 64
"""Shorter pieces are tokenized as quickly as found."""


class WholeTokenizer:
    """Tokenizes a text from its beginning."""

    def __init__(self, tokenizer: Foreign) -> None:
        """`tokenizer` is one of Hugging Face's."""
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the ids of exactly this text: nothing added, nothing cut."""
        encoded = self._tokenizer(
            text, add_special_tokens=False, truncation=False, return_attention_mask=False, verbose=False
        )
        token_ids: list[int] = encoded["input_ids"]
        return token_ids


class SegmentedTokenizer(WholeTokenizer):
    """Tokenizes a text piece by piece, and keeps what pieces became. For one thread at a time."""

    def __init__(self, tokenizer: Foreign, *, kept_tokens: int = KEPT_TOKENS) -> None:
        """Nothing is tokenized yet."""
        super().__init__(tokenizer)
        self._special = {
            added.content: token_id
            for token_id, added in getattr(tokenizer, "added_tokens_decoder", {}).items()
            if added.special and not (added.lstrip or added.rstrip or added.single_word or added.normalized)
        }
        longest_first = sorted(self._special, key=len, reverse=True)
        self._cut = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
        self._most_tokens = kept_tokens
        self._tokens = 0
        self._kept: OrderedDict[bytes, array[int]] = OrderedDict()

    def agrees(self, texts: list[str]) -> bool:
        """Say whether these texts become the same in pieces as whole, and each has something to cut at."""
        whole, cut = super().encode, self._cut
        return cut is not None and all(
            cut.search(text) is not None and self.encode(text) == whole(text) for text in texts
        )

    @override
    def encode(self, text: str) -> list[int]:
        if self._cut is None:
            return super().encode(text)
        token_ids: list[int] = []
        for piece in self._cut.split(text):
            special = self._special.get(piece)
            if special is not None:
                token_ids.append(special)
            elif len(piece) < _KEPT_FROM_CHARS:
                token_ids += super().encode(piece) if piece else []
            else:
                token_ids += self._encode_once(piece)
        return token_ids

    def _encode_once(self, piece: str) -> "array[int]":
        key = blake2b(piece.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        fresh = array(PACKED_TYPE, super().encode(piece))
        self._kept[key] = fresh
        self._tokens += len(fresh)
        while self._tokens > self._most_tokens:
            _, oldest = self._kept.popitem(last=False)
            self._tokens -= len(oldest)
        return fresh
