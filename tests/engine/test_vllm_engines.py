"""Two real engines under Ray, behind the pool: what a turn is, and what an engine's death does to it."""

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from acting import TURNS, ActingEngine
from processes import actors, command_of, descendants, engine_cores, wait_gone

from runner.datasets import Problem
from runner.engines.base import (
    Completion,
    GenerationRequest,
    Prompt,
    PromptTooLongError,
    RequestRefusedError,
    Sampling,
    TrajectoryKey,
)
from runner.engines.reports import PoolSnapshot, ReplicaDown, ReplicaReport, ReplicaState, ReplicaUp
from runner.engines.scripted import render_chatml
from runner.engines.vllm.engine import VllmEngine
from runner.engines.vllm.settings import VllmSettings
from runner.engines.vllm.wire import Device
from runner.events import Event, TurnDone, Unfinished
from runner.protocol.prompt import Message
from runner.scheduler import RetryPolicy, Scheduler
from runner.simulation.run import SleepingSandbox, simulation_rules
from runner.simulation.workload import Workload, WorkloadTrajectory, WorkloadTurn
from runner.trajectory import Job, TrajectoryRunner

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),  # other people's imports warn
]

CONTEXT_TOKENS = 512
GREEDY = Sampling(
    temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0, presence_penalty=0.0, repetition_penalty=1.0
)
RANDOM = replace(GREEDY, temperature=1.0)
RESTART_S = 400.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all of the module, since the engines are."""
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    """Two engines of the small model, in float32, where seeds hold."""
    settings = VllmSettings(
        model=str(small_model),
        context_tokens=CONTEXT_TOKENS,
        device=Device.CPU,
        engines=2,
        dtype="float32",
        max_num_seqs=4,
        start_timeout_s=400.0,
        generation_timeout_s=100.0,
    )
    async with VllmEngine(settings, log_dir=tmp_path_factory.mktemp("logs")) as engine:
        yield engine


async def ask(
    engine: VllmEngine,
    text: str = "Count from one to twenty.",
    *,
    number: int = 0,
    max_tokens: int = 12,
    sampling: Sampling = GREEDY,
    seed: int = 1,
    stop: tuple[str, ...] = (),
    prompt: Prompt | None = None,
) -> Completion:
    request = GenerationRequest(
        key=TrajectoryKey("set", f"p{number}", 0),
        attempt=1,
        turn=0,
        prompt=prompt or await engine.render(({"role": "user", "content": text},)),
        sampling=sampling,
        seed=seed,
        max_tokens=max_tokens,
        stop=stop,
    )
    return await engine.generate(request)


async def settled(engine: VllmEngine, *, within_s: float = RESTART_S) -> PoolSnapshot:
    """Wait until all replicas serve and none has work, by the pool's count and by vLLM's."""
    with anyio.fail_after(within_s):
        while True:
            snapshot = await engine.snapshot()
            if all(
                one.state is ReplicaState.SERVING and one.stats is not None and one.stats.running == 0
                for one in snapshot.replicas
            ):
                return snapshot
            await anyio.sleep(0.2)


def listen(engine: VllmEngine) -> tuple[list[ReplicaReport], anyio.Event]:
    """Collect what the pool reports from now on; the event is set with the first."""
    reports: list[ReplicaReport] = []
    heard = anyio.Event()
    listening = False

    def hear(report: ReplicaReport) -> None:
        if listening:  # what came before is told first
            reports.append(report)
            heard.set()

    engine.report_to(hear)
    listening = True
    return reports, heard


async def test_turns_are_spread_over_both_engines_and_all_is_told(engine: VllmEngine) -> None:
    done: list[Completion] = []

    async def one(number: int) -> None:
        done.append(await ask(engine, number=number))

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(one, number)

    assert {one.engine for one in done} == {"engine0", "engine1"}
    assert len({one.text for one in done}) == 1  # greedy
    for one in done:
        assert one.completion_tokens == 12
        assert one.finish_reason == "length"
        assert one.timing is not None
        assert one.timing.prefill_s is not None
        assert one.timing.prefill_s > 0
        assert one.timing.decode_s is not None
        assert one.timing.decode_s > 0
        assert one.cached_tokens is None
    snapshot = await settled(engine)
    told = [one.stats for one in snapshot.replicas if one.stats is not None]
    assert sum(one.generation_tokens or 0 for one in told) == 6 * 12
    assert sum(one.prompt_tokens or 0 for one in told) == sum(one.prompt_tokens for one in done)
    assert all(one.kv_cache_usage == 0 for one in told)


async def test_a_prompt_is_the_template_s_tokens_with_thinking_off_and_one_bos_at_most(
    engine: VllmEngine, small_model: Path
) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415 - absent where this is skipped

    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"})
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    prompt = await engine.render(messages)  # type: ignore[arg-type]

    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    assert prompt.token_ids is not None
    assert tokenizer.decode(list(prompt.token_ids)) == text
    assert prompt.tokens == len(prompt.token_ids)
    assert text.endswith("assistant\n")
    assert (await ask(engine, prompt=prompt)).prompt_tokens == prompt.tokens


async def test_two_turns_of_a_trajectory_are_rendered_as_the_golden_trajectories_were(
    engine: VllmEngine, small_model: Path
) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415 - absent where this is skipped

    turns: tuple[Message, ...] = (
        {"role": "system", "content": "Use the shell."},
        {"role": "user", "content": "How much is 6 * 7?"},
        {"role": "assistant", "content": 'Action: {"name": "bash", "arguments": {"command": "echo 42"}}'},
        {"role": "user", "content": "Observation: 42"},
        {"role": "assistant", "content": "Final answer: 42"},
        {"role": "user", "content": "Observation: go on"},
    )
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    if "<|im_start|>" not in str(tokenizer.chat_template):
        pytest.skip("the small model's template is not ChatML")
    for messages in (turns[:4], turns):
        prompt = await engine.render(messages)

        assert tokenizer.decode(list(prompt.token_ids or ())) == render_chatml(messages)


async def test_a_stop_string_is_cut_off_and_its_tokens_are_counted(engine: VllmEngine) -> None:
    whole = await ask(engine, max_tokens=24)
    words = " ".join(whole.text.split()[3:6])

    cut = await ask(engine, max_tokens=24, stop=(words,))

    assert words not in cut.text
    assert whole.text.startswith(cut.text)
    assert cut.finish_reason == "stop"
    kept = (await engine.render(({"role": "user", "content": cut.text},))).tokens or 0
    empty = (await engine.render(({"role": "user", "content": ""},))).tokens or 0
    assert kept - empty < cut.completion_tokens < 24


async def test_a_seed_alone_decides_what_is_sampled(engine: VllmEngine) -> None:
    texts = [(await ask(engine, sampling=RANDOM, seed=seed, max_tokens=20)).text for seed in (5, 5, 6)]

    assert texts[0] == texts[1] != texts[2]


async def test_a_prompt_that_leaves_no_room_is_too_long_and_one_that_leaves_little_ends_early(
    engine: VllmEngine,
) -> None:
    def of_length(tokens: int) -> Prompt:
        return Prompt(messages=(), tokens=tokens, token_ids=(7,) * tokens)

    for tokens in (CONTEXT_TOKENS, CONTEXT_TOKENS + 1000):
        with pytest.raises(PromptTooLongError):
            await ask(engine, prompt=of_length(tokens))
    near = await ask(engine, prompt=of_length(CONTEXT_TOKENS - 3), max_tokens=20)
    assert (near.finish_reason, near.completion_tokens) == ("length", 3)


async def test_what_vllm_finds_wrong_with_a_request_is_the_request_s_and_no_loss(engine: VllmEngine) -> None:
    with pytest.raises(RequestRefusedError, match=r"^\w*Error: .*out of vocabulary"):
        await ask(engine, prompt=Prompt(messages=(), tokens=1, token_ids=(2_000_000,)))
    with pytest.raises(RequestRefusedError, match=r"Error: .*top_p"):
        await ask(engine, sampling=replace(GREEDY, top_p=7.0))
    assert all(one.state is ReplicaState.SERVING for one in (await engine.snapshot()).replicas)


async def test_a_cancelled_turn_frees_its_place(engine: VllmEngine) -> None:
    before = await settled(engine)
    with anyio.move_on_after(1.0) as scope:
        await ask(engine, max_tokens=400, sampling=RANDOM)
    assert scope.cancelled_caught
    after = await settled(engine, within_s=5.0)

    def generated(snapshot: PoolSnapshot) -> int:
        return sum(one.stats.generation_tokens or 0 for one in snapshot.replicas if one.stats is not None)

    assert 0 < generated(after) - generated(before) < 400


async def test_the_engine_says_what_a_result_depends_on(engine: VllmEngine) -> None:
    identity = engine.identity()

    assert identity["engine_seeds"] == [0, 1]
    assert identity["devices"] == ["cpu", "cpu"]
    assert identity["versions"] == {
        "python": [os.sys.version.split()[0]],  # type: ignore[attr-defined]
        "torch": identity["versions"]["torch"],  # type: ignore[index]
        "vllm": ["0.19.1"],
        "transformers": ["4.57.6"],
        "ray": ["2.56.1"],
    }
    assert engine.deviations() == (
        "the engines run on a CPU, the report's on GPUs",
        "the engines compute in float32, the report's in bfloat16",
    )


@pytest.mark.parametrize("victim", ["engine core", "actor"])
async def test_an_engine_killed_under_its_turns_is_told_at_once_and_the_turns_go_on(
    engine: VllmEngine, victim: str
) -> None:
    await settled(engine)
    reports, heard = listen(engine)
    family = descendants()
    pid = (engine_cores if victim == "engine core" else actors)(family)[0]
    below = descendants(pid)
    done: list[Completion] = []

    async def one(number: int) -> None:
        done.append(await ask(engine, number=number, max_tokens=60))

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, number)
        await anyio.sleep(1.0)
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(5.0):
            await heard.wait()

    assert len(done) == 4
    assert len({one.text for one in done}) == 1
    await settled(engine)
    down, up = reports
    assert isinstance(down, ReplicaDown)
    assert ("exit code -9" if victim == "engine core" else "ActorDiedError") in down.cause
    assert isinstance(up, ReplicaUp)
    assert (up.name, up.starts >= 2) == (down.name, True)
    assert wait_gone(below, within_s=5.0) == {}  # an engine core does not outlive its actor


async def test_an_idle_engine_that_dies_is_missed_as_soon(engine: VllmEngine) -> None:
    await settled(engine)
    reports, heard = listen(engine)

    os.kill(engine_cores(descendants())[0], signal.SIGKILL)
    with anyio.fail_after(3.0):
        await heard.wait()
    assert isinstance(reports[0], ReplicaDown)
    assert reports[0].requeued == 0


async def run_of(engine: VllmEngine, trajectories: int) -> dict[tuple[str, int], str]:
    """Run trajectories by the run's own scheduler, and return every turn's text."""
    turns = (WorkloadTurn(output_tokens=1),) * TURNS
    rules = simulation_rules(Workload([WorkloadTrajectory(prompt_tokens=1, turns=turns)]))
    limits = replace(rules.limits, context_tokens=CONTEXT_TOKENS, max_tokens_per_turn=24, tool_timeout_s=5.0)
    events: list[Event] = []
    runner = TrajectoryRunner(
        replace(rules, limits=limits, sampling=GREEDY),
        ActingEngine(engine),
        SleepingSandbox(),
        generation=anyio.Semaphore(trajectories),
        tools=anyio.Semaphore(trajectories),
        emit=events.append,
    )
    jobs = [
        Job("set", Problem(str(row), row, f"Write about the number {row}.", "0"), 0, 0)
        for row in range(trajectories)
    ]
    await Scheduler(runner, in_flight=trajectories, retry=RetryPolicy(), emit=events.append).run(jobs)
    assert not [one for one in events if isinstance(one, Unfinished)]
    return {(one.problem_id, one.turn): one.assistant for one in events if isinstance(one, TurnDone)}


async def test_a_run_in_which_engines_actors_and_workers_are_killed_ends_as_if_nothing_had_been(
    engine: VllmEngine,
) -> None:
    await settled(engine)
    undisturbed = await run_of(engine, 8)
    assert len(undisturbed) == 8 * TURNS
    family = descendants()
    disturbed: dict[tuple[str, int], str] = {}

    async def run_again() -> None:
        disturbed.update(await run_of(engine, 8))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_again)
        await anyio.sleep(1.0)
        os.kill(engine_cores(descendants())[0], signal.SIGKILL)
        for pid in family:
            if command_of(pid).startswith("ray::IDLE"):
                os.kill(pid, signal.SIGKILL)
        await anyio.sleep(1.0)
        os.kill(actors(descendants())[-1], signal.SIGKILL)

    assert disturbed == undisturbed
    await settled(engine)
