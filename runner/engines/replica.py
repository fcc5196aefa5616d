"""One copy of a checkpoint, as the pool sees it: it starts, generates, tells how it is, and can be lost.

A replica owns no policy. Where a turn goes, what happens to turns of a lost replica and when it is started
again is the pool's (`pool.py`); what a replica must do is tell at once, and truly, that it is gone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from runner.engines.base import Completion, EngineUnavailableError, GenerationRequest
from runner.engines.reports import ReplicaStats


class ReplicaLostError(EngineUnavailableError):
    """This copy is gone, or answers nothing any more; others may serve. The request itself is innocent."""


class ReplicaStartError(EngineUnavailableError):
    """This copy did not come up. The message holds the last lines of its log."""


class Replica(ABC):
    """One copy of the checkpoint. All methods may be called from many tasks at once but `start`."""

    def __init__(self, name: str, slots: int) -> None:
        """`name` is what journals and views call it; `slots` how many turns it takes at once."""
        self.name = name
        self.slots = slots

    @property
    def node(self) -> str | None:
        """The node of a cluster on which it is, or was last; None where there is but this machine."""
        return None

    @property
    def has_place(self) -> bool:
        """Whether it can start now, or has to wait for a node with room."""
        return True

    async def wait_place(self, waits: Callable[[], None]) -> None:  # noqa: B027 - optional
        """Return once there is a place for it to start in; not bounded, since a node may come hours later.

        `waits` is called if there is none: that its node is gone may be found out only now.
        """

    @abstractmethod
    async def start(self) -> None:
        """Come up, from nothing or after a loss; return when it can generate.

        Bounded. Raises `ReplicaStartError` with the last lines of its log, or `UserError` where the user can
        mend it (no such checkpoint, too little memory by the settings).
        """

    @abstractmethod
    async def close(self) -> None:
        """Release everything, whatever state it is in, within seconds. May be called again."""

    @abstractmethod
    async def generate(self, request: GenerationRequest) -> Completion:
        """Generate one turn; cancelling it frees its place in the batch.

        Raises `PromptTooLongError`, `RequestRefusedError`, or `ReplicaLostError`.
        """

    @abstractmethod
    async def wait_lost(self) -> str:
        """Return why, as soon as a started replica is found gone, also while it has nothing to do."""

    @abstractmethod
    async def stats(self) -> ReplicaStats:
        """Tell how it is; bounded. Raises `ReplicaLostError`."""
