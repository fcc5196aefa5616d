"""What a trajectory asks of an engine: render and count a prompt, generate one turn.

Failures are typed by whose they are, because that decides what they cost: a prompt that is too long
or refused belongs to the model's trajectory and is scored; everything else is ours and is not.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import anyio
from typing_extensions import Self, override

from runner.engines.reports import PoolSnapshot, ReplicaReport
from runner.errors import InfrastructureError
from runner.protocol.prompt import Message

if TYPE_CHECKING:
    from runner.artifacts.progress import FetchListener

CLOSE_TIMEOUT_S = 30.0


@dataclass(frozen=True, order=True)
class TrajectoryKey:
    """Names one trajectory of a run: the sample-th attempt at a problem of a data set."""

    dataset: str
    problem_id: str
    sample: int

    @override
    def __str__(self) -> str:
        return f"{self.dataset}/{self.problem_id}:sample{self.sample:02d}"


@dataclass(frozen=True)
class Sampling:
    """Sampling settings of a profile; every one is sent, none is left to a server's default."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    repetition_penalty: float


@dataclass(frozen=True)
class Prompt:
    """A conversation rendered for one engine. `tokens` is None where only the server can count."""

    messages: tuple[Message, ...]
    tokens: int | None
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class GenerationRequest:
    """One turn to generate. `max_tokens` bounds the completion.

    `turn` counts from 0, `attempt` from 1: a trajectory starts again after a failure of ours.
    """

    key: TrajectoryKey
    attempt: int
    turn: int
    prompt: Prompt
    sampling: Sampling
    seed: int
    max_tokens: int
    stop: tuple[str, ...]


@dataclass(frozen=True)
class GenerationTiming:
    """Where the time of one turn went, in seconds: waiting for a place, prefill, decoding.

    None is what the engine does not tell.
    """

    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None


@dataclass(frozen=True)
class Completion:
    """What the engine wrote, the stop string cut off. `engine` says which of several wrote it.

    `cached_tokens` of the prompt came from a prefix cache; None where the engine does not tell.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    engine: str
    cached_tokens: int | None = None
    timing: GenerationTiming | None = None


class PromptTooLongError(Exception):
    """The prompt does not fit the context: a limit of the model, scored as such."""


class RequestRefusedError(Exception):
    """This very prompt is refused, and would be again: scored 0 after one more try.

    `original` is the engine's own error as `Type: message`; it stands in results files.
    """

    def __init__(self, original: str) -> None:
        super().__init__(original)
        self.original = original


class EngineUnavailableError(InfrastructureError):
    """The engine is dead, unreachable, too slow, or answered nonsense: ours, never scored."""


class ScriptExhaustedError(InfrastructureError):
    """A script has no completion for this turn; trying again cannot help."""


class Engine(ABC):
    """One or several copies of a checkpoint behind one interface; an async context manager.

    Entering checks that the engine can serve (a `UserError` where the user can mend it) and
    leaving releases it. All methods may be called by many trajectories at once.
    """

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Shielded: what `start` took is given back also by a run that is stopped.
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            await self.close()

    @abstractmethod
    async def start(self) -> None:
        """Make ready, or raise `UserError` or `EngineUnavailableError`."""

    @abstractmethod
    async def close(self) -> None:
        """Release what `start` took, all of it or a part. May be called again."""

    @abstractmethod
    async def render(self, messages: tuple[Message, ...]) -> Prompt:
        """Render the conversation with the generation prompt added, and count it if that is possible."""

    @abstractmethod
    async def generate(self, request: GenerationRequest) -> Completion:
        """Generate one turn.

        Raises `PromptTooLongError`, `RequestRefusedError` (the trajectory's own), or
        `EngineUnavailableError` (ours).
        """

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """Everything of this engine that a result depends on, for the journal; never a secret."""

    @abstractmethod
    def deviations(self) -> tuple[str, ...]:
        """Why a run with this engine cannot be a reproduction, one sentence each; empty if it can."""

    def ended(self, key: TrajectoryKey) -> None:  # noqa: B027 - optional
        """A trajectory asks for no further turns: what was kept for it can go."""

    def revive(self) -> None:  # noqa: B027 - optional
        """Try once more what was given up: the run is paused, and its cause may have gone."""

    def report_to(self, listener: Callable[[ReplicaReport], None]) -> None:  # noqa: B027 - optional
        """Tell `listener` of every replica that comes up or goes down, those before this call included."""

    def show_nodes_to(self, listener: "FetchListener") -> None:  # noqa: B027 - optional
        """Tell `listener` how far the nodes of a cluster are, and which are refused."""

    @property
    def planned(self) -> tuple[str, ...]:
        """What becomes of the profile's settings on this machine, a line each; none if they are taken as
        they are."""
        return ()

    async def snapshot(self) -> PoolSnapshot | None:
        """Tell how the replicas are used; None where this side does not know. Bounded, never raises."""
        return None
