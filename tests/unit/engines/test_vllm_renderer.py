"""Prompts are rendered by the checkpoint's template, and tokenized without adding anything."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import anyio
import pytest

from runner.engines.base import RequestRefusedError
from runner.engines.vllm.renderer import ChatRenderer
from runner.errors import UserError
from runner.protocol.prompt import Message

pytestmark = pytest.mark.anyio

MESSAGES: tuple[Message, ...] = ({"role": "system", "content": "S"}, {"role": "user", "content": "U"})


class FakeTokenizer:
    """A token is a character; what it was asked with is kept."""

    chat_template: str | None = "x"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: dict[str, Any] = {}
        self.at_once = 0
        self.most_at_once = 0

    def apply_chat_template(self, messages: list[Message], **options: Any) -> str:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.error is not None:
            raise self.error
        self.asked |= options
        return "".join(f"{message['role'][0]}{message['content']}" for message in messages)

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        self.asked |= options
        self.at_once -= 1
        return {"input_ids": [ord(one) for one in text]}


def install(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    module = ModuleType("transformers")
    module.AutoTokenizer = SimpleNamespace(from_pretrained=load)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")


async def test_a_prompt_has_the_generation_prompt_no_thinking_and_no_second_bos() -> None:
    tokenizer = FakeTokenizer()
    prompt = await ChatRenderer(tokenizer).render(MESSAGES)

    assert prompt.token_ids == tuple(map(ord, "sSuU"))
    assert (prompt.tokens, prompt.messages) == (4, MESSAGES)
    assert tokenizer.asked["add_generation_prompt"] is True
    assert tokenizer.asked["enable_thinking"] is False
    assert tokenizer.asked["tokenize"] is False
    assert tokenizer.asked["add_special_tokens"] is False
    assert tokenizer.asked["truncation"] is False


async def test_a_tokenizer_is_used_by_one_thread_at_a_time() -> None:
    tokenizer = FakeTokenizer()
    renderer = ChatRenderer(tokenizer)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(renderer.render, MESSAGES)

    assert tokenizer.most_at_once == 1


async def test_a_template_that_refuses_a_conversation_refuses_that_request() -> None:
    with pytest.raises(RequestRefusedError, match="TypeError: no such role"):
        await ChatRenderer(FakeTokenizer(TypeError("no such role"))).render(MESSAGES)


async def test_a_template_that_refuses_trajectories_is_told_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, lambda *_, **__: FakeTokenizer(RuntimeError("roles must alternate")))

    with pytest.raises(UserError, match=r"template of .*refuses.*: RuntimeError: roles must alternate"):
        await ChatRenderer.load(Path("model"))


async def test_a_tokenizer_without_template_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = FakeTokenizer()
    tokenizer.chat_template = None
    install(monkeypatch, lambda *_, **__: tokenizer)

    with pytest.raises(UserError, match="has no chat template"):
        await ChatRenderer.load(Path("model"))


async def test_a_missing_tokenizer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise OSError("no file named tokenizer.json\nand more")

    install(monkeypatch, load)
    with pytest.raises(UserError, match=r"no tokenizer in model: OSError: no file named tokenizer\.json\n"):
        await ChatRenderer.load(Path("model"))


async def test_a_tokenizer_that_does_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda *_, **__: FakeTokenizer())

    assert (await (await ChatRenderer.load(Path("model"))).render(MESSAGES)).tokens == 4


async def test_conversations_are_tokenized_whole_where_pieces_were_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = FakeTokenizer()
    added = SimpleNamespace(
        content="sS", special=True, lstrip=False, rstrip=False, single_word=False, normalized=False
    )
    tokenizer.added_tokens_decoder = {7: added}  # type: ignore[attr-defined]
    install(monkeypatch, lambda *_, **__: tokenizer)

    # No text that is tried holds the special token, so nothing says that this tokenizer cuts there.
    assert (await (await ChatRenderer.load(Path("model"))).render(MESSAGES)).token_ids == tuple(
        map(ord, "sSuU")
    )
