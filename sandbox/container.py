"""One container, from its start to the answer of its agent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import anyio

from sandbox.attached import AttachedStream
from sandbox.classify import ContainerState, classify
from sandbox.engine import ContainerSpec, Engine
from sandbox.errors import SandboxInfrastructureError
from sandbox.frames import AnswerBuilder, Frame, FrameError, FrameReader, check_hello, encode_request
from sandbox.policy import Policy
from sandbox.types import ActionResult

# After the stream ended, the engine needs a moment to know that a container is dead and of what.
STATE_TIMEOUT_S = 20.0
STATE_INTERVAL_S = 0.1


@dataclass(frozen=True)
class AgentContainer:
    """A started container whose agent has said hello."""

    container_id: str
    stream: AttachedStream
    reader: FrameReader

    @classmethod
    async def prepare(cls, engine: Engine, spec: ContainerSpec, policy: Policy) -> AgentContainer:
        """Start a container and wait for its agent. Leaves nothing behind when it fails or is cancelled."""
        container_id, stream = await engine.launch(spec)
        container = cls(container_id, stream, FrameReader(policy.capture_bytes))
        try:
            with anyio.fail_after(policy.start_timeout_s):
                check_hello(await container._first_frame(), spec.role)
        except BaseException as error:
            await container.destroy(engine, policy.start_timeout_s)
            if isinstance(error, FrameError):
                raise SandboxInfrastructureError(f"the sandbox agent ({spec.role}): {error}") from error
            if isinstance(error, TimeoutError):
                raise SandboxInfrastructureError(
                    f"the sandbox agent ({spec.role}) said nothing for {policy.start_timeout_s:g} s"
                ) from error
            raise
        return container

    async def exchange(self, engine: Engine, policy: Policy, script: bytes, timeout_s: float) -> ActionResult:
        """Send one command and read its answer. The container is of no use afterwards, whatever happened.

        Raises `SandboxInfrastructureError` where there is no result; from the first byte of the request on
        the command counts as started unless the agent itself says that it did not.
        """
        request = encode_request(
            script,
            timeout_ms=math.ceil(timeout_s * 1000),
            capture_bytes=policy.capture_bytes,
            output_limit_bytes=policy.output_limit_bytes,
            environment=policy.environment,
        )
        builder = AnswerBuilder()
        sent_at = anyio.current_time()
        try:
            with anyio.fail_after(policy.transfer_timeout_s):
                await self.stream.send(request)
            with anyio.fail_after(policy.transfer_timeout_s + timeout_s + policy.grace_s):
                complete = await self._read_answer(builder)
            answer = builder.build()
        except FrameError as error:
            raise SandboxInfrastructureError(
                f"the sandbox agent spoke nonsense: {error}", command_started=True
            ) from error
        except TimeoutError as error:
            raise SandboxInfrastructureError(
                f"a sandbox container did not answer {policy.grace_s:g} s past the command's deadline",
                command_started=True,
            ) from error
        except OSError as error:
            raise SandboxInfrastructureError(
                f"the connection to a sandbox container broke: {error}", command_started=True
            ) from error
        state = None if complete else await self._final_state(engine)
        return classify(answer, state, anyio.current_time() - sent_at)

    def is_ready(self) -> bool:
        """Whether the agent still waits for its request."""
        return self.stream.is_quiet()

    async def destroy(self, engine: Engine, timeout_s: float) -> bool:
        """Kill and remove at once, even under cancellation; False if that could not be confirmed in time."""
        self.stream.close()
        with anyio.move_on_after(timeout_s, shield=True):
            try:
                await engine.kill(self.container_id)
            except SandboxInfrastructureError:
                return False
            return True
        return False

    async def _first_frame(self) -> Frame:
        while (data := await self.stream.receive()) is not None:
            for frame in self.reader.feed(data):
                return frame
        raise FrameError("it ended before it said hello")

    async def _read_answer(self, builder: AnswerBuilder) -> bool:
        """Feed the builder to the answer's end (True) or the stream's (False)."""
        while (data := await self.stream.receive()) is not None:
            for frame in self.reader.feed(data):
                if builder.add(frame):
                    return True
        return False

    async def _final_state(self, engine: Engine) -> ContainerState | None:
        """What became of a container whose stream ended early. Its end may show before its cause does."""
        state: ContainerState | None = None
        try:
            with anyio.move_on_after(STATE_TIMEOUT_S):
                while True:
                    state = await engine.state(self.container_id)
                    if state is None or not state.running:
                        break
                    await anyio.sleep(STATE_INTERVAL_S)
        except SandboxInfrastructureError as error:
            raise SandboxInfrastructureError(error.message, error.remedy, command_started=True) from error
        return state
