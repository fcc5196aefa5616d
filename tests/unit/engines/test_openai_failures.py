"""What a server does wrong: whose failure it is, how long it is tried again, what is said before a run."""

from typing import Any

import anyio
import pytest
from support.openai_requests import MESSAGES, request, settings
from support.openai_server import MODEL, OpenAIServer, Reply, completion, error, json_reply

from runner.engines.base import (
    EngineUnavailableError,
    PromptTooLongError,
    RequestRefusedError,
)
from runner.engines.openai import OpenAIEngine
from runner.errors import UserError

pytestmark = pytest.mark.anyio


async def start_and_stop(engine: OpenAIEngine) -> None:
    async with engine:
        pass


async def test_a_failing_tokenize_is_tried_again() -> None:
    with OpenAIServer(tokenizes=True) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            server.planned_tokenize += [error(503, "loading"), json_reply({"tokens": []})]
            assert (await engine.render(MESSAGES)).tokens is not None

    assert not server.planned_tokenize


@pytest.mark.parametrize(
    "failure",
    [
        error(429, "slow down", Retry_After="0"),
        error(408, "too slow"),
        error(500, "broke"),
        error(503, "loading"),
        Reply(502, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"}),
        Reply(200, b'{"choices": [', cut=True),
        Reply(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
        Reply(200, b"[" * 100_000),
        json_reply({"usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        json_reply({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        json_reply({"choices": [{"message": {"content": "no usage"}}]}),
        json_reply({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": None}}),
        json_reply({"choices": [{"message": {"content": [1]}}], "usage": {}}),
    ],
    ids=[
        *("429", "408", "500", "503", "502 html", "cut", "html", "deep nesting"),
        *("no choices", "empty choices", "no usage", "null usage", "content no string"),
    ],
)
async def test_a_passing_failure_is_tried_again_with_the_same_seed(failure: Reply) -> None:
    with OpenAIServer(lambda _: completion("at last")) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            server.planned.append(failure)
            written = await engine.generate(request())

    assert written.text == "at last"
    assert [one.body["seed"] for one in server.chats] == [1234, 1234]


@pytest.mark.parametrize(
    ("body", "lacks"),
    [({"choices": [{"message": {"content": "1"}}]}, "usage"), ({"hello": 1}, "choices")],
    ids=["no usage", "no choices"],
)
async def test_a_server_whose_answers_lack_what_every_turn_needs_is_refused_at_the_start(
    body: dict[str, object], lacks: str
) -> None:
    with (
        OpenAIServer(lambda _: json_reply(body)) as server,
        pytest.raises(UserError, match=rf"without what every turn needs.*no {lacks}"),
    ):
        await start_and_stop(OpenAIEngine(settings(server.url)))


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_failure_that_stays_is_ours_after_bounded_tries(attempts: int) -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url, attempts=attempts)) as engine:
            server.respond = lambda _: error(500, "broken for good")
            with pytest.raises(EngineUnavailableError, match=rf"broken for good.*tried {attempts} times"):
                await engine.generate(request())

    assert len(server.chats) == attempts


async def test_retrying_ends_with_its_time() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url, attempts=1000, retry_for_s=0.0)) as engine:
            server.respond = lambda _: error(500, "broken")
            with pytest.raises(EngineUnavailableError, match="tried 1 times"):
                await engine.generate(request())


@pytest.mark.parametrize("late", [Reply(hold=True), Reply(drip=True)], ids=["silent", "a byte now and then"])
async def test_an_answer_that_never_ends_is_given_up(late: Reply) -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url, attempts=1, request_timeout_s=0.2)) as engine:
            server.planned.append(late)
            with anyio.fail_after(5):
                with pytest.raises(
                    EngineUnavailableError, match=r"ReadTimeout|no whole answer within 0\.2 s"
                ):
                    await engine.generate(request())


async def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            server.planned.append(error(429, "slow down", Retry_After="0.3"))
            started = anyio.current_time()
            await engine.generate(request())

    assert anyio.current_time() - started >= 0.3


OPENAI_TOO_LONG = json_reply(
    {
        "error": {
            "message": "Your input is too large for this model.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
    400,
)


VLLM_TOO_LONG = [
    "This model's maximum context length is 4000 tokens. However, your request has 3900 input tokens.",
    "You passed 3900 input tokens, requested 500. However, the model's context length is only 4000 tokens.",
    "The decoder prompt (length 9000) is longer than the maximum model length of 4000.",
]


@pytest.mark.parametrize(
    "reply",
    [
        OPENAI_TOO_LONG,
        *(error(400, text) for text in VLLM_TOO_LONG),
        json_reply({"object": "error", "message": VLLM_TOO_LONG[0], "code": 400}, 400),
        error(413, VLLM_TOO_LONG[0]),
    ],
    ids=["openai", "vllm", "vllm 0.15", "vllm engine", "vllm flat", "413"],
)
async def test_a_prompt_that_does_not_fit_is_the_model_s_limit(reply: Reply) -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            server.planned.append(reply)
            with pytest.raises(PromptTooLongError):
                await engine.generate(request())

    assert len(server.chats) == 1


async def test_another_bad_request_is_a_refusal_in_the_server_s_words() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            server.planned.append(error(400, "roles must alternate"))
            with pytest.raises(RequestRefusedError) as raised:
                await engine.generate(request())

    assert raised.value.original == "BadRequestError: roles must alternate"
    assert len(server.chats) == 1


@pytest.mark.parametrize("status", [204, 301, 307, 401, 402, 403, 404, 405, 407, 410, 413, 451])
async def test_an_answer_that_is_not_about_this_prompt_is_ours(status: int) -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            server.planned.append(Reply(status) if status == 204 else error(status, "not today"))
            with pytest.raises(EngineUnavailableError, match=f"HTTP {status}"):
                await engine.generate(request())

    assert len(server.chats) == 1


async def test_nobody_there_is_said_before_the_run() -> None:
    with OpenAIServer() as server:
        gone = server.url
    with pytest.raises(UserError, match="no server answers at"):
        await OpenAIEngine(settings(gone)).start()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_said_before_the_run(status: int) -> None:
    with (
        OpenAIServer(models=error(status, "who are you")) as server,
        pytest.raises(UserError, match="environment variable MY_KEY"),
    ):
        await start_and_stop(OpenAIEngine(settings(server.url, api_key_env="MY_KEY")))


async def test_a_wrong_model_name_is_said_before_the_run_with_what_there_is() -> None:
    with OpenAIServer() as server, pytest.raises(UserError, match=f"does not serve 'other'\n.*{MODEL}"):
        async with OpenAIEngine(settings(server.url, model="other")):
            pass


@pytest.mark.parametrize(
    "models",
    [
        Reply(200, b"<html>Welcome</html>"),
        error(500, "broken"),
        json_reply({"data": None}),
        json_reply({"data": {"id": "x"}}),
        Reply(302, headers={"Location": "/login"}),
    ],
    ids=["html", "500", "null", "object", "redirect"],
)
async def test_an_address_that_lists_no_models_is_said_before_the_run(models: Reply) -> None:
    with OpenAIServer(models=models) as server, pytest.raises(UserError, match="without a list of models"):
        await start_and_stop(OpenAIEngine(settings(server.url)))


async def test_a_server_without_a_models_route_can_serve() -> None:
    with OpenAIServer(models=json_reply({"detail": "Not Found"}, 404)) as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            assert (await engine.generate(request())).text == "Final answer: 1"


async def test_a_context_that_is_too_short_is_said_before_the_run() -> None:
    with (
        OpenAIServer(tokenizes=True, context_tokens=2000) as server,
        pytest.raises(UserError, match="serves a context of 2000 tokens, the profile needs 4000"),
    ):
        await start_and_stop(OpenAIEngine(settings(server.url)))


async def test_a_parameter_that_the_server_refuses_is_said_before_the_run() -> None:
    def respond(body: dict[str, Any]) -> Reply:
        return error(400, "Unrecognized argument: top_k") if "top_k" in body else completion("fine")

    with OpenAIServer(respond) as server:
        with pytest.raises(UserError, match=r"Unrecognized argument: top_k\n.*omit_parameters"):
            async with OpenAIEngine(settings(server.url)):
                pass
        async with OpenAIEngine(settings(server.url, omit_parameters=frozenset({"top_k"}))) as engine:
            await engine.generate(request())

    assert len(server.chats) == 1


async def test_the_check_at_the_start_sends_every_field_of_a_turn() -> None:
    with OpenAIServer() as server:
        async with OpenAIEngine(settings(server.url)) as engine:
            await engine.generate(request())

    assert [set(one.body) for one in server.probes] == [set(server.chats[0].body)]
