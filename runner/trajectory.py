"""One trajectory, from its prompt to its termination.

The loop is the report's (`protocol/`), made of an engine, a sandbox and permits. Nothing here decides
about retries of our own failures: those leave as `InfrastructureError` and the scheduler starts the
trajectory again. What ends here has a score.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

from runner.datasets import Problem
from runner.engines.base import (
    Completion,
    Engine,
    EngineUnavailableError,
    GenerationRequest,
    GenerationTiming,
    PromptTooLongError,
    RequestRefusedError,
    Sampling,
    TrajectoryKey,
)
from runner.events import Event, Fault, Terminated, ToolRecord, TrajectoryStarted, TurnDone, TurnKind
from runner.observe import Observed, observe
from runner.protocol.action import (
    Action,
    ParsedTurn,
    TurnParseError,
    bash_command,
    is_blocked_command,
    parse_turn,
)
from runner.protocol.answer import displayed_prediction
from runner.protocol.prompt import Message, ProtocolPack, initial_messages, observation_message
from runner.protocol.score import Termination, answer_status, score_trajectory
from runner.protocol.seeds import trajectory_seed, turn_seed
from runner.waiting import GENERATE_TIMEOUT_S, OPEN_TIMEOUT_S, RENDER_TIMEOUT_S, RUN_EXTRA_S, Waiting
from sandbox import ActionResult, Sandbox, SandboxError, SandboxInfrastructureError, Workspace

BASH = "bash"
WORKSPACE_CLOSE_TIMEOUT_S = 5.0
MAX_TURNS_ERROR = "max_react_turns_exceeded"
"""What results files carry as the error of a trajectory whose turns ran out (the report's word)."""

Emit = Callable[[Event], object]
Permit = AbstractAsyncContextManager[object]
Worked = Callable[[Fault, TrajectoryKey, float], None]
"""Is told when an engine or a sandbox did for a trajectory what it is there for, and when that was begun."""


@dataclass(frozen=True)
class Limits:
    """The protocol's limits. Lengths in tokens or characters as named, times in seconds."""

    max_turns: int
    context_tokens: int
    max_tokens_per_turn: int
    tool_timeout_s: float
    observation_limit_chars: int


@dataclass(frozen=True)
class Rules:
    """What is the same for every trajectory of a run."""

    pack: ProtocolPack
    limits: Limits
    sampling: Sampling


@dataclass(frozen=True)
class Job:
    """One trajectory to run: the sample-th attempt at a problem. `row_index` is the problem's place
    in the whole data set, since seeds derive from it also where only a part is run."""

    dataset: str
    problem: Problem
    sample: int
    base_seed: int

    @property
    def key(self) -> TrajectoryKey:
        """The name of this trajectory."""
        return TrajectoryKey(self.dataset, self.problem.id, self.sample)

    @property
    def seed(self) -> int:
        """The trajectory's seed by the report's rule."""
        return trajectory_seed(self.base_seed, self.problem.row_index, self.sample)


@dataclass
class _Conversation:
    """What one attempt has said and seen so far."""

    messages: list[Message]
    last_completion: str = ""
    used_bash: bool = False
    turn_seeds: list[int] = field(default_factory=list)
    max_context_tokens: int = 0
    generated_tokens: int = 0


@dataclass(frozen=True)
class _Step:
    """What follows a completion: `kind`, and the observation that goes back to the model if it goes on."""

    kind: TurnKind
    action: Action | None = None
    observation: str | None = None
    tool: ToolRecord | None = None
    tool_wait_s: float = 0.0
    tool_s: float = 0.0


@dataclass(frozen=True)
class _Generated:
    completion: Completion
    seeds: tuple[int, ...]
    wait_s: float
    generate_s: float


@dataclass(frozen=True)
class _End:
    termination: Termination
    error: str | None


class _EndedError(Exception):
    """Carries a termination out of the loop, from however deep."""

    def __init__(self, termination: Termination, error: str | None) -> None:
        super().__init__(termination.value)
        self.end = _End(termination, error)


class TrajectoryRunner:
    """Runs trajectories one attempt at a time; shared by all of a run, holds no state of any."""

    def __init__(
        self,
        rules: Rules,
        engine: Engine,
        sandbox: Sandbox,
        *,
        generation: Permit,
        tools: Permit,
        emit: Emit,
        waiting: Waiting | None = None,
    ) -> None:
        """`generation` and `tools` bound what runs at once; neither is held while the other is.

        `waiting` keeps what each trajectory waits for.
        """
        self._rules = rules
        self._engine = engine
        self._sandbox = sandbox
        self._generation = generation
        self._tools = tools
        self._emit = emit
        self._waiting = waiting or Waiting()
        self.worked: Worked = lambda _fault, _key, _began_at: None

    async def run(self, job: Job, attempt: int) -> Terminated:
        """Run one attempt to its termination and return it, emitted already.

        Raises `InfrastructureError` (runner's or the sandbox's own kind) where our side failed.
        """
        started = anyio.current_time()
        key = job.key
        self._emit(
            TrajectoryStarted(
                dataset=key.dataset,
                problem_id=key.problem_id,
                sample=key.sample,
                attempt=attempt,
                row_index=job.problem.row_index,
                seed=job.seed,
            )
        )
        conversation = _Conversation(initial_messages(self._rules.pack, job.problem.question))
        try:
            async with self._workspace(key, attempt) as workspace:
                end = await self._converse(job, attempt, conversation, workspace)
                elapsed_s = anyio.current_time() - started
        finally:
            self._engine.ended(key)
        terminated = self._terminated(job, attempt, conversation, end, elapsed_s)
        self._emit(terminated)
        return terminated

    @asynccontextmanager
    async def _workspace(self, key: TrajectoryKey, attempt: int) -> AsyncIterator["_LazyWorkspace"]:
        lazy = _LazyWorkspace(self._sandbox, key, f"{key}:{attempt}", self._waiting)
        try:
            yield lazy
        finally:
            # Also under cancellation: a workspace that stays open is containers and memory that stay.
            # What is not closed, or not in time, is removed with the run's label at its end.
            # Neither does its closing undo what the trajectory came to.
            with anyio.move_on_after(WORKSPACE_CLOSE_TIMEOUT_S, shield=True), suppress(SandboxError):
                await lazy.close()

    async def _converse(
        self, job: Job, attempt: int, conversation: _Conversation, workspace: "_LazyWorkspace"
    ) -> _End:
        try:
            await self._turns(job, attempt, conversation, workspace)
        except _EndedError as ended:
            return ended.end
        return _End(Termination.MAX_TURNS, MAX_TURNS_ERROR)

    async def _turns(
        self, job: Job, attempt: int, conversation: _Conversation, workspace: "_LazyWorkspace"
    ) -> None:
        for turn in range(self._rules.limits.max_turns):
            generated = await self._generate(job, attempt, turn, conversation)
            completion = generated.completion
            conversation.last_completion = completion.text
            conversation.generated_tokens += completion.completion_tokens
            conversation.max_context_tokens = max(
                conversation.max_context_tokens, completion.prompt_tokens + completion.completion_tokens
            )
            try:
                step = await self._step(job.key, completion.text, conversation, workspace)
            except TurnParseError as error:
                self._emit_turn(job, attempt, turn, generated, _Step(TurnKind.PARSE_ERROR))
                raise _EndedError(Termination.REQUEST_ERROR, error.original) from error
            self._emit_turn(job, attempt, turn, generated, step)
            if step.kind is TurnKind.FINAL_ANSWER:
                raise _EndedError(Termination.FINAL_ANSWER, None)
            pack = self._rules.pack
            name = pack.format_check_name if step.action is None else step.action.name
            conversation.messages += [
                {"role": "assistant", "content": completion.text},
                observation_message(pack, name, step.observation or ""),
            ]

    async def _generate(self, job: Job, attempt: int, turn: int, conversation: _Conversation) -> _Generated:
        """Generate one turn; a refused one is tried once more, with the same seed."""
        asked = anyio.current_time()
        seeds: list[int] = []
        async with self._permit(self._generation, job.key, "a permit to generate"):
            wait_s = anyio.current_time() - asked
            started = anyio.current_time()
            try:
                try:
                    completion = await self._ask(job, attempt, turn, conversation, seeds)
                except RequestRefusedError:
                    completion = await self._ask(job, attempt, turn, conversation, seeds)
            except PromptTooLongError as error:
                # Where only the server counts it was asked: by the report's rule no seed was drawn.
                del conversation.turn_seeds[len(conversation.turn_seeds) - len(seeds) :]
                self.worked(Fault.ENGINE, job.key, started)
                too_long = Termination.CONTEXT_LENGTH_EXCEEDED
                raise _EndedError(too_long, too_long.value) from error
            except RequestRefusedError as error:
                self.worked(Fault.ENGINE, job.key, started)
                raise _EndedError(Termination.REQUEST_ERROR, error.original) from error
            self.worked(Fault.ENGINE, job.key, started)
            return _Generated(completion, tuple(seeds), wait_s, anyio.current_time() - started)

    async def _ask(
        self, job: Job, attempt: int, turn: int, conversation: _Conversation, seeds: list[int]
    ) -> Completion:
        """Ask the engine once. The prompt has to leave room for a whole turn; it is never trimmed."""
        limits = self._rules.limits
        with self._waiting.within(
            job.key, "the engine, for a prompt's tokens", RENDER_TIMEOUT_S, EngineUnavailableError
        ):
            prompt = await self._engine.render(tuple(conversation.messages))
        if prompt.tokens is not None:
            if prompt.tokens + limits.max_tokens_per_turn > limits.context_tokens:
                raise PromptTooLongError(f"{prompt.tokens} tokens leave no room for a turn")
            conversation.max_context_tokens = max(conversation.max_context_tokens, prompt.tokens)
        seed = turn_seed(job.seed, turn)
        seeds.append(seed)
        conversation.turn_seeds.append(seed)
        request = GenerationRequest(
            key=job.key,
            attempt=attempt,
            turn=turn,
            prompt=prompt,
            sampling=self._rules.sampling,
            seed=seed,
            max_tokens=limits.max_tokens_per_turn,
            stop=self._rules.pack.stop,
        )
        with self._waiting.within(
            job.key, f"the engine, for turn {turn + 1}", GENERATE_TIMEOUT_S, EngineUnavailableError
        ):
            return await self._engine.generate(request)

    async def _step(
        self, key: TrajectoryKey, text: str, conversation: _Conversation, workspace: "_LazyWorkspace"
    ) -> _Step:
        """Decide what a completion means, and do it (protocol/README: One turn, 1 to 4)."""
        pack = self._rules.pack
        parsed: ParsedTurn = parse_turn(text)
        action = parsed.action
        if action is None:
            if parsed.final_answer is None:
                return _Step(TurnKind.FORMAT_CHECK, observation=pack.no_action_warning)
            if not conversation.used_bash:
                return _Step(TurnKind.FORMAT_CHECK, observation=pack.answer_before_bash_warning)
            return _Step(TurnKind.FINAL_ANSWER)
        if action.name != BASH:
            return _Step(TurnKind.ACTION, action, observation=pack.unknown_action(action.name))
        command = bash_command(action)
        if not command.strip():
            return _Step(TurnKind.ACTION, action, observation=pack.empty_command_observation)
        conversation.used_bash = True
        if is_blocked_command(command):
            return _Step(TurnKind.ACTION, action, observation=pack.blocked_command_observation)
        return await self._run_tool(key, action, command, workspace)

    async def _run_tool(
        self, key: TrajectoryKey, action: Action, command: str, workspace: "_LazyWorkspace"
    ) -> _Step:
        # Opened before the permit is taken: a sandbox may make this wait for room that others give up only
        # after a command of theirs, which needs a permit.
        await workspace.open()
        asked = anyio.current_time()
        async with self._permit(self._tools, key, "a permit to run a command"):
            wait_s = anyio.current_time() - asked
            started = anyio.current_time()
            observed: Observed = await observe(
                workspace.run,
                command,
                timeout_s=self._rules.limits.tool_timeout_s,
                limit_chars=self._rules.limits.observation_limit_chars,
            )
            tool_s = anyio.current_time() - started
        if observed.tool is not None:
            self.worked(Fault.SANDBOX, key, started)
        return _Step(
            TurnKind.ACTION, action, observed.text, tool=observed.tool, tool_wait_s=wait_s, tool_s=tool_s
        )

    @asynccontextmanager
    async def _permit(self, permit: Permit, key: TrajectoryKey, what: str) -> AsyncIterator[None]:
        """Hold a permit. There is no limit for getting one: who holds it is bounded."""
        async with AsyncExitStack() as held:
            with self._waiting.on(key, what):
                await held.enter_async_context(permit)
            yield

    def _emit_turn(self, job: Job, attempt: int, turn: int, generated: _Generated, step: _Step) -> None:
        completion = generated.completion
        timing = completion.timing or GenerationTiming()
        self._emit(
            TurnDone(
                dataset=job.dataset,
                problem_id=job.problem.id,
                sample=job.sample,
                attempt=attempt,
                turn=turn,
                seeds=generated.seeds,
                engine=completion.engine,
                assistant=completion.text,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                finish_reason=completion.finish_reason,
                kind=step.kind,
                action=None if step.action is None else step.action.as_mapping(),
                observation=step.observation,
                tool=step.tool,
                generate_wait_s=round(generated.wait_s, 6),
                generate_s=round(generated.generate_s, 6),
                tool_wait_s=round(step.tool_wait_s, 6),
                tool_s=round(step.tool_s, 6),
                cached_tokens=completion.cached_tokens,
                queue_s=_rounded(timing.queue_s),
                prefill_s=_rounded(timing.prefill_s),
                decode_s=_rounded(timing.decode_s),
            )
        )

    def _terminated(
        self, job: Job, attempt: int, conversation: _Conversation, end: _End, elapsed_s: float
    ) -> Terminated:
        last = conversation.last_completion
        score = score_trajectory(
            last, job.problem.answer, used_bash=conversation.used_bash, termination=end.termination
        )
        return Terminated(
            dataset=job.dataset,
            problem_id=job.problem.id,
            sample=job.sample,
            attempt=attempt,
            termination=end.termination,
            score=score.value,
            score_method=score.method,
            answer_status=answer_status(last),
            prediction=displayed_prediction(last),
            used_bash=conversation.used_bash,
            max_context_tokens=conversation.max_context_tokens,
            generated_tokens=conversation.generated_tokens,
            turn_seeds=tuple(conversation.turn_seeds),
            react_error=end.error,
            elapsed_s=round(elapsed_s, 6),
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


class _LazyWorkspace:
    """Opens the trajectory's workspace at its first command; many trajectories never need one."""

    def __init__(self, sandbox: Sandbox, key: TrajectoryKey, workspace_id: str, waiting: Waiting) -> None:
        self._sandbox = sandbox
        self._key = key
        self._id = workspace_id
        self._waiting = waiting
        self._workspace: Workspace | None = None

    async def open(self) -> Workspace:
        if self._workspace is None:
            with self._waiting.within(
                self._key, "the sandbox, for a workspace", OPEN_TIMEOUT_S, SandboxInfrastructureError
            ):
                self._workspace = await self._sandbox.open(self._id)
        return self._workspace

    async def run(self, script: str, timeout_s: float) -> ActionResult:
        workspace = await self.open()
        with self._waiting.within(
            self._key, "the sandbox, for a command", timeout_s + RUN_EXTRA_S, SandboxInfrastructureError
        ):
            return await workspace.run(script, timeout_s)

    async def close(self) -> None:
        if self._workspace is not None:
            await self._workspace.close()
