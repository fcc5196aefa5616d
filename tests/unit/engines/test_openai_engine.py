"""What the engine sends to a server and makes of the answer; how it begins, places turns and ends."""

import json
import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support.openai_requests import MESSAGES, request, settings
from support.openai_server import MODEL, OpenAIServer, Reply, completion, error, json_reply

from runner.engines.base import (
    EngineUnavailableError,
    RequestRefusedError,
)
from runner.engines.openai import OpenAIEngine
from runner.engines.openai_pool import MAX_MESSAGE_CHARS
from runner.engines.openai_wire import FINISH_REASON_CHARS, OMITTABLE_PARAMETERS, completion_body
from runner.errors import UserError
from runner.protocol.prompt import Message

pytestmark = pytest.mark.anyio


KEY = "sk-very-secret-0123456789"


async def test_every_sampling_setting_stands_in_the_request() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            await engine.generate(request())

    assert [one.body for one in server.chats] == [
        {
            "model": MODEL,
            "messages": list(MESSAGES),
            "n": 1,
            "stream": False,
            "max_tokens": 500,
            "seed": 1234,
            "stop": ["<form>", "\n\n"],
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 40,
            "min_p": 0.05,
            "presence_penalty": 1.5,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.1,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


async def test_a_completion_carries_text_token_counts_and_who_wrote_it() -> None:
    with OpenAIServer(lambda _: completion("yes", prompt_tokens=3, completion_tokens=2)) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            written = await engine.generate(request())

        assert (written.text, written.prompt_tokens, written.completion_tokens) == ("yes", 3, 2)
        assert (written.finish_reason, written.engine) == ("stop", server.url)


async def test_a_completion_without_content_is_an_empty_text() -> None:
    with OpenAIServer(lambda _: completion(None)) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            assert (await engine.generate(request())).text == ""


async def test_omitted_parameters_are_not_sent_and_are_a_deviation() -> None:
    with OpenAIServer(tokenizes=True) as server:
        chosen = settings(server.url, omit_parameters=frozenset({"min_p", "chat_template_kwargs"}))
        async with OpenAIEngine(chosen) as engine:
            await engine.generate(request())
            deviations = engine.deviations()

    assert {"min_p", "chat_template_kwargs"}.isdisjoint(server.chats[0].body)
    assert deviations[1:] == ("not sent: chat_template_kwargs, min_p",)


async def test_the_api_key_goes_from_the_environment_into_the_header_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY}\n")
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url, api_key_env="MY_KEY")) as engine:
            await engine.generate(request())
            identity = engine.identity()

    assert server.chats[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(identity)
    assert KEY.encode() not in server.chats[0].raw


@pytest.mark.parametrize("status", [400, 402, 500])
async def test_a_key_that_the_server_quotes_is_not_in_the_error(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url, attempts=1)) as engine:
            server.planned.append(error(status, f"Incorrect API key provided: {KEY}."))
            with pytest.raises((EngineUnavailableError, RequestRefusedError)) as raised:
                await engine.generate(request())

    assert "Incorrect API key provided: [API key]." in str(raised.value)
    assert KEY not in str(raised.value)


async def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(UserError, match="OPENAI_API_KEY holds no API key") as raised:
        await OpenAIEngine(settings("http://127.0.0.1:9/v1")).start()

    assert KEY not in str(raised.value)


async def test_no_key_sends_no_authorization() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            await engine.generate(request())

    assert "OPENAI_API_KEY" not in os.environ
    assert "Authorization" not in server.chats[0].headers


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/v1", "no http address"),
        ("host:8000/v1", "no http address"),
        ("http://", "no http address"),
        ("http://host:notaport/v1", "Invalid port"),
        ("http://[::1/v1", "base_urls"),
    ],
)
def test_an_address_that_is_none_is_named(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        OpenAIEngine(settings(url))

    assert url in str(raised.value)


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(UserError, match="address of gpu-node holds a user or a password") as raised:
        OpenAIEngine(settings(f"http://me:{KEY}@gpu-node:8000/v1"))

    assert KEY not in str(raised.value)


async def test_prompts_are_counted_by_tokenize_where_the_server_has_it() -> None:
    with OpenAIServer(tokenizes=True) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            prompt = await engine.render(MESSAGES)
            identity, deviations = engine.identity(), engine.deviations()

    assert prompt.tokens == len("Use the shell.") + len("How many?")
    assert server.requests[-1].body == {
        "model": MODEL,
        "messages": list(MESSAGES),
        "add_generation_prompt": True,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert identity["counts_tokens"] is True
    assert not any("/tokenize" in one for one in deviations)


async def test_prompts_are_uncounted_and_that_is_a_deviation_without_tokenize() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            prompt = await engine.render(MESSAGES)
            deviations = engine.deviations()

    assert prompt.tokens is None
    assert any("/tokenize" in one for one in deviations)


async def test_one_server_without_tokenize_leaves_all_prompts_uncounted() -> None:
    with OpenAIServer(tokenizes=True) as counting, OpenAIServer() as other:
        async with OpenAIEngine(settings(counting.url, other.url)) as engine:
            assert (await engine.render(MESSAGES)).tokens is None


async def test_turns_go_to_the_server_with_the_fewest_under_way() -> None:
    with OpenAIServer() as first, OpenAIServer() as second:
        async with (
            OpenAIEngine(settings(first.url, second.url)) as engine,
            anyio.create_task_group() as tasks,
        ):
            for server in (first, second):
                server.respond = lambda _: Reply(
                    200, completion("held").body, {"Content-Type": "application/json"}, hold=True
                )
            for _ in range(6):
                tasks.start_soon(engine.generate, request())
            with anyio.fail_after(5):
                while len(first.chats) + len(second.chats) < 6:  # noqa: ASYNC110 - a server in a thread
                    await anyio.sleep(0.01)
            first.release.set()
            second.release.set()

    assert (len(first.chats), len(second.chats)) == (3, 3)


async def test_a_dead_server_is_avoided_and_the_other_takes_its_turns() -> None:
    with OpenAIServer() as dying, OpenAIServer() as living:
        async with OpenAIEngine(settings(dying.url, living.url)) as engine:
            dying.stop()
            written = [await engine.generate(request(seed=seed)) for seed in range(5)]

    assert {one.engine for one in written} == {living.url}
    assert len(living.chats) == 5


async def test_a_server_that_failed_once_is_used_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engines.openai_pool.AVOID_S", 0.05)
    with OpenAIServer() as first, OpenAIServer() as second:
        async with OpenAIEngine(settings(first.url, second.url)) as engine:
            first.planned.append(error(503, "loading"))
            await engine.generate(request())
            await anyio.sleep(0.1)
            written = await engine.generate(request())

        assert written.engine == first.url


async def test_a_busy_server_is_not_waited_for_where_another_is_free() -> None:
    with OpenAIServer() as busy, OpenAIServer() as free:
        async with OpenAIEngine(settings(busy.url, free.url)) as engine:
            busy.planned.append(error(429, "slow down", Retry_After="60"))
            with anyio.fail_after(5):
                written = await engine.generate(request())

        assert written.engine == free.url


async def test_a_cancelled_turn_hangs_up() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine, anyio.create_task_group() as tasks:
            server.planned.append(Reply(hold=True))
            tasks.start_soon(engine.generate, request())
            await anyio.to_thread.run_sync(server.held.wait, 5)
            tasks.cancel_scope.cancel()

        assert server.hung_up.wait(5)


async def test_half_a_surrogate_pair_in_a_message_arrives_as_it_was() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            messages: tuple[Message, ...] = ({"role": "user", "content": "\ud800 and \x00"},)
            await engine.generate(request(messages))

    assert server.chats[0].body["messages"] == [{"role": "user", "content": "\ud800 and \x00"}]


async def test_half_a_surrogate_pair_in_a_message_can_be_counted() -> None:
    with OpenAIServer(tokenizes=True) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            assert (await engine.render(({"role": "user", "content": "\udfff"},))).tokens == 1


async def test_an_engine_that_was_not_started_is_ours() -> None:
    with pytest.raises(EngineUnavailableError, match="not started"):
        await OpenAIEngine(settings("http://127.0.0.1:9/v1")).generate(request())


async def test_a_start_that_fails_closes_what_it_had_opened() -> None:
    with OpenAIServer(models=error(401, "no")) as server:
        engine = OpenAIEngine(settings(server.url))
        with pytest.raises(UserError):
            async with engine:
                pass
    with pytest.raises(EngineUnavailableError, match="not started"):
        await engine.generate(request())


@pytest.mark.parametrize("change", [lambda engine: engine.close, lambda engine: engine.start])
async def test_starting_and_closing_twice_is_once(change: Callable[[OpenAIEngine], Any]) -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            await change(engine)()
            await change(engine)()


async def test_an_answer_without_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engines.openai_pool.MAX_ANSWER_BYTES", 5000)
    with OpenAIServer(lambda _: completion("x" * 6000)) as server:
        async with OpenAIEngine(settings(server.url, attempts=2)) as engine:
            with pytest.raises(EngineUnavailableError, match=r"more than 5000 bytes \(tried 2 times\)"):
                await engine.generate(request())


async def test_a_server_s_words_are_kept_to_a_length_and_its_key_is_out_before_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    words = "x" * (MAX_MESSAGE_CHARS - 5) + KEY + "y" * 100_000
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url, attempts=1)) as engine:
            for reply in (error(400, words), error(500, words), Reply(502, words.encode())):
                server.planned.append(reply)
                with pytest.raises((RequestRefusedError, EngineUnavailableError)) as raised:
                    await engine.generate(request())

                assert len(str(raised.value)) < MAX_MESSAGE_CHARS + 200
                assert KEY[:5] not in str(raised.value)


async def test_a_finish_reason_is_kept_to_a_length() -> None:
    body = json.loads(completion("x").body)
    body["choices"][0]["finish_reason"] = "stop" * 1000
    with OpenAIServer(lambda _: json_reply(body)) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            assert len((await engine.generate(request())).finish_reason) == FINISH_REASON_CHARS


def test_what_can_be_left_out_is_what_a_turn_can_do_without() -> None:
    sent = set(completion_body(request(), model=MODEL, omit=frozenset()))

    assert sent - OMITTABLE_PARAMETERS == {"model", "messages", "max_tokens", "stop"}
    assert sent >= OMITTABLE_PARAMETERS
