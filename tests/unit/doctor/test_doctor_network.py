"""What has to be fetched, who answers, and whose clock is right."""

import http.server
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
from doctor_support import NOW, Net, a_host, a_question

from runner.artifacts import Store, manifest_for
from runner.artifacts.settings import FetchSettings
from runner.doctor.host import Host, Reply
from runner.doctor.network import (
    Servers,
    examine_artifacts,
    examine_clock,
    examine_server,
    judge_clock,
    judge_fetch,
)
from runner.doctor.question import Question
from runner.doctor.report import Finding, State
from runner.hashing import sha256_file

pytestmark = pytest.mark.anyio
DEAD = Reply(problem="Name or service not known")


async def artifacts(question: Question, net: Net | None = None) -> Finding:
    host = a_host() if net is None else a_host(ask=net.ask)
    return await examine_artifacts(question, Servers(question, host))


async def test_a_profile_that_brings_everything_has_nothing_to_fetch() -> None:
    net = Net()

    assert (await artifacts(a_question("demo"), net)).state is State.SKIPPED
    assert net.asked == []


async def test_what_is_missing_and_can_be_had_is_fine() -> None:
    net = Net()

    found = await artifacts(a_question(), net)

    assert found.state is State.OK
    assert "have to be fetched; huggingface.co and raw.githubusercontent.com answer" in found.detail
    assert len(net.asked) == 2


async def test_a_model_without_a_manifest_is_not_sent_to_a_fetch_that_does_nothing(tmp_path: Path) -> None:
    found = await artifacts(a_question("cpu", fetching=FetchSettings(hub_cache=tmp_path)), Net(DEAD))

    assert found.state is State.FAILED
    assert "recount fetch" not in (found.remedy or "")
    for part in ("--model DIRECTORY", "RECOUNT_MODELS", "RECOUNT_MODEL="):
        assert part in (found.remedy or "")


async def test_a_server_that_does_not_answer_is_named_with_the_ways_around() -> None:
    found = await artifacts(a_question(), Net(DEAD))

    assert found.state is State.FAILED
    assert "does not answer: Name or service not known" in found.detail
    for part in ("HTTPS_PROXY", "HF_ENDPOINT", "--from DIR"):
        assert part in (found.remedy or "")


async def test_offline_with_something_missing_fails_and_asks_nobody() -> None:
    net = Net()

    found = await artifacts(a_question(offline=True), net)

    assert found.state is State.FAILED
    assert "HF_HUB_OFFLINE" in found.detail
    assert net.asked == []


def everything_here(directory: Path) -> Question:
    manifest = manifest_for("final4")
    if manifest is None:
        raise AssertionError("final4 has a manifest")
    store = Store(manifest, directory / "models", directory / "datasets")
    for file in manifest.files:
        path = store.path_of(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.path)
        store.record_of(file).remember(store.name_of(file), sha256_file(path))
    return a_question(models_dir=directory / "models", data_dir=directory / "datasets", offline=True)


async def test_everything_here_needs_no_network(tmp_path: Path) -> None:
    net = Net(DEAD)
    question = everything_here(tmp_path)

    found = await artifacts(question, net)

    assert found.state is State.OK
    assert (
        found.detail
        == f"{len(question.manifest.files if question.manifest else ())} files are here and verified"
    )
    assert net.asked == []


async def test_a_file_that_changed_since_its_fetch_is_not_called_verified(tmp_path: Path) -> None:
    question = everything_here(tmp_path)
    (tmp_path / "datasets" / "aime_2026.jsonl").write_text("another file, of another size")

    assert "1 are not hashed yet" in (await artifacts(question)).detail


async def test_what_was_let_pass_unverified_is_a_warning(tmp_path: Path) -> None:
    question = everything_here(tmp_path)
    if question.store is None:
        raise AssertionError("final4 has a store")
    question.store.data_record.mark("aime_2026.jsonl", "another hash")

    found = await artifacts(question)

    assert found.state is State.WARNING
    assert "aime_2026.jsonl: another hash" in found.detail


async def test_a_checkpoint_that_was_named_is_looked_at_and_not_fetched(tmp_path: Path) -> None:
    question = a_question(overrides={"engine.model": str(tmp_path)})

    found = await artifacts(question)

    assert (found.state, found.detail) == (
        State.FAILED,
        f"the checkpoint at {tmp_path} is incomplete: config.json is missing",
    )


async def test_a_model_in_the_hub_s_cache_is_here(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Qwen--Qwen2.5-0.5B-Instruct" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    net = Net(DEAD)

    found = await artifacts(a_question("cpu", fetching=FetchSettings(hub_cache=tmp_path)), net)

    assert found.state is State.OK
    assert net.asked == []


@pytest.mark.parametrize(
    ("reply", "state", "said"),
    [
        (Reply(200), State.OK, "answers"),
        (Reply(307), State.OK, "answers"),
        (Reply(401), State.FAILED, "refuses it"),
        (Reply(404), State.FAILED, "does not have it"),
        (Reply(429), State.WARNING, "HTTP 429"),
        (Reply(503), State.WARNING, "HTTP 503"),
        (DEAD, State.FAILED, "does not answer"),
    ],
)
def test_what_a_server_says_is_judged(reply: Reply, state: State, said: str) -> None:
    found = judge_fetch("3 files", {"https://huggingface.co/a/b": reply})

    assert found.state is state
    assert said in found.detail


async def test_the_token_goes_to_the_hub_alone() -> None:
    net = Net()
    question = a_question(fetching=FetchSettings(token="secret"))

    await artifacts(question, net)

    told = dict(zip(net.asked, net.headers, strict=True))
    assert {url.split("/")[2] for url, headers in told.items() if headers} == {"huggingface.co"}


async def test_a_server_is_asked_once_whoever_wants_to_know() -> None:
    net, question = Net(), a_question()
    servers = Servers(question, a_host(ask=net.ask))

    await examine_artifacts(question, servers)
    await examine_clock(servers, a_host())

    assert len(net.asked) == len(set(net.asked)) == 2


# ── clock ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("year", "state"), [(1970, State.FAILED), (2024, State.FAILED), (2026, State.OK), (2101, State.FAILED)]
)
def test_a_clock_that_was_never_set_is_a_failure(year: int, state: State) -> None:
    now = datetime(year, 6, 1, tzinfo=timezone.utc).timestamp()

    assert judge_clock(now, None, "").state is state


@pytest.mark.parametrize(
    ("off_s", "state", "said"),
    [
        (0, State.OK, "as hub has it"),
        (299, State.OK, "as hub has it"),
        (4000, State.WARNING, "4000 s ahead of hub"),
    ],
)
def test_a_clock_far_from_a_server_s_is_a_warning(off_s: float, state: State, said: str) -> None:
    found = judge_clock(NOW + off_s, NOW, "hub")

    assert found.state is state
    assert said in found.detail


@pytest.mark.parametrize(("profile", "offline"), [("demo", False), ("final4", True)])
async def test_nobody_is_asked_for_the_time_without_need(profile: str, offline: bool) -> None:
    net = Net()
    question = a_question(profile, offline=offline)

    found = await examine_clock(Servers(question, a_host(ask=net.ask)), a_host())

    assert found.state is State.OK
    assert net.asked == []


# ── a model served elsewhere ─────────────────────────────────────────────────────────────────────────────

ELSEWHERE = {"engine": {"kind": "openai", "model": "m", "base_urls": ["http://gpu:8000/v1"]}}


@pytest.mark.parametrize(
    ("reply", "state"), [(Reply(200), State.OK), (Reply(401), State.OK), (DEAD, State.FAILED)]
)
async def test_a_model_server_has_to_answer(reply: Reply, state: State) -> None:
    net = Net(reply)
    question = a_question(overrides=ELSEWHERE)

    found = await examine_server(question, Servers(question, a_host(ask=net.ask)))

    assert found.state is state
    assert net.asked == ["http://gpu:8000/v1/models"]


async def test_a_model_served_elsewhere_needs_no_checkpoint() -> None:
    net = Net()
    question = a_question(overrides=ELSEWHERE)

    await artifacts(question, net)

    assert not question.fetches_checkpoint
    assert not any("resolve" in url and "safetensors" in url for url in net.asked)


async def test_a_real_server_s_date_is_read() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    reply = await Host().ask(f"http://127.0.0.1:{server.server_port}/nothing", {})
    thread.join()
    server.server_close()

    assert reply.status == 404
    assert reply.served_at is not None
    assert abs(reply.served_at - datetime.now(timezone.utc).timestamp()) < 60
