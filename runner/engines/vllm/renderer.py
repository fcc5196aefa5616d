"""From a conversation to the token ids that an engine is given: the checkpoint's own tokenizer and template.

By the report's rule all messages are rendered with the chat template, generation prompt on and thinking off
where the template knows it, and nothing is ever trimmed. The template writes every special token itself, so
its text is tokenized without adding any: a tokenizer that would put a BOS in front puts none before the
template's own.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from runner.engines.base import Prompt, RequestRefusedError
from runner.engines.vllm.tokens import SegmentedTokenizer, WholeTokenizer
from runner.engines.vllm.wire import Foreign, describe_error
from runner.errors import UserError
from runner.protocol.prompt import Message

_THREADS = 1
"""A tokenizer may not be used by two threads at once; one renders faster than any number of engines reads."""

_TRIAL: tuple[Message, ...] = (
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "a"},
    {"role": "user", "content": "o"},
)
"""The roles of a trajectory, in their order."""
_ODD_TEXTS = (
    " begins and ends with blanks \n",
    "\n\n   indented\r\n\ttabs, e\u0301 and \ufb01, \u4f60\u597d, \U0001f600, 1234567 and 3.14",
    'Action:\n{"name": "bash"}<|im_end|>\n<|im_start|>user\n </s> <s> <unk>',
)
"""What could fare otherwise at the edges of a piece, each long enough to be one."""
_TRIALS = (
    _TRIAL,
    *(tuple(Message(role=one["role"], content=odd * 4) for one in _TRIAL) for odd in _ODD_TEXTS),
)


class ChatRenderer:
    """Renders and counts prompts, in a thread."""

    def __init__(self, tokenizer: Foreign) -> None:
        """`tokenizer` is one of Hugging Face's."""
        self._tokenizer = tokenizer
        self._encoder = WholeTokenizer(tokenizer)
        self._limiter = anyio.CapacityLimiter(_THREADS)

    @classmethod
    async def load(cls, directory: Path) -> "ChatRenderer":
        """Read a checkpoint's tokenizer and try its template; raise `UserError` where either does not do."""
        renderer = cls(await run_sync(_load_tokenizer, directory))
        try:
            prompt = await renderer.render(_TRIAL)
        except RequestRefusedError as error:
            raise UserError(
                f"the chat template of {directory} refuses a conversation of system, user, assistant and"
                f" user: {error.original}",
                remedy="a trajectory is such a conversation; use a checkpoint whose template takes it",
            ) from error
        if not prompt.tokens:
            raise UserError(
                f"the chat template of {directory} renders a conversation to nothing",
                remedy="name a checkpoint of a chat model",
            )
        await run_sync(renderer._try_pieces)
        return renderer

    def _try_pieces(self) -> None:
        """Keep what pieces of conversations become, where this tokenizer is one that allows it."""
        pieces = SegmentedTokenizer(self._tokenizer)
        try:
            agrees = pieces.agrees([self._text(messages) for messages in _TRIALS])
        except Exception:  # noqa: BLE001 - a template that takes no odd text; whole is right in any case
            return
        if agrees:
            self._encoder = pieces

    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        """Return the prompt and its token ids. Raises `RequestRefusedError` where the template refuses it."""
        try:
            token_ids = await run_sync(self._encode, messages, limiter=self._limiter)
        except Exception as error:
            # Templates raise what they like; the same conversation would be refused again.
            raise RequestRefusedError(describe_error(error)) from error
        return Prompt(messages=messages, tokens=len(token_ids), token_ids=tuple(token_ids))

    def _encode(self, messages: Sequence[Message]) -> list[int]:
        return self._encoder.encode(self._text(messages))

    def _text(self, messages: Sequence[Message]) -> str:
        text: str = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return text


def _load_tokenizer(directory: Path) -> Foreign:
    # Read once, at import: without it a tokenizer warns on the terminal of what does not concern it.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers = importlib.import_module("transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"no tokenizer in {directory}: {describe_error(error).splitlines()[0]}",
            remedy="fetch the checkpoint again, with its tokenizer files",
        ) from error
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer in {directory} has no chat template",
            remedy="name a checkpoint of a chat model; its template is part of what is evaluated",
        )
    return tokenizer
