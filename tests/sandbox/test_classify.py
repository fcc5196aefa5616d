"""Which endings are the command's, and which are failures of ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.classify import ContainerState, classify
from sandbox.errors import SandboxInfrastructureError
from sandbox.frames import Answer, Ending, ResultFrame, StreamFacts
from sandbox.types import Limit
from sandbox.utf8 import Utf8Error, Utf8Fault

PIDS = "/sys/fs/cgroup/pids.events"
MEMORY = "/sys/fs/cgroup/memory.events"

RESULT = ResultFrame(Ending.ITSELF, 3, 1_500_000, 250_000, StreamFacts(10, None), StreamFacts(0, None))
ANSWER = Answer(True, b"head", b"tail", b"", b"", {}, {}, RESULT, None)
BROKEN_OFF = replace(ANSWER, result=None)
DEAD = ContainerState(running=False, oom_killed=False, exit_code=137, error="")


def test_a_finished_command_has_its_own_exit_code() -> None:
    action = classify(ANSWER, None, 9.0)
    assert (action.exit_code, action.timed_out, action.limits) == (3, False, ())
    assert (action.usage.wall_s, action.usage.cpu_s) == (1.5, 0.25)
    assert action.stdout.dropped_bytes == 2


@pytest.mark.parametrize(("ending", "limit"), [(Ending.DEADLINE, Limit.TIME), (Ending.OUTPUT, Limit.OUTPUT)])
def test_a_command_that_we_ended_has_no_exit_code(ending: Ending, limit: Limit) -> None:
    action = classify(replace(ANSWER, result=replace(RESULT, ending=ending, exit_code=-9)), None, 9.0)
    assert (action.exit_code, action.timed_out, action.limits) == (None, True, (limit,))


@pytest.mark.parametrize(
    ("files", "limit"), [({MEMORY: "oom_kill 1"}, Limit.MEMORY), ({PIDS: "max 5"}, Limit.PROCESSES)]
)
def test_a_limit_that_bit_a_child_is_named_though_the_shell_went_on(
    files: dict[str, str], limit: Limit
) -> None:
    action = classify(replace(ANSWER, cgroup_after=files), None, 9.0)
    assert (action.exit_code, action.limits) == (3, (limit,))


def test_memory_that_took_the_agent_too_is_the_commands_doing() -> None:
    action = classify(BROKEN_OFF, replace(DEAD, oom_killed=True), 9.0)
    assert (action.exit_code, action.timed_out, action.limits) == (-9, False, (Limit.MEMORY,))
    assert action.usage.wall_s == 9.0


@pytest.mark.parametrize("state", [None, DEAD, replace(DEAD, running=True)])
def test_a_container_lost_for_any_other_reason_is_ours(state: ContainerState | None) -> None:
    with pytest.raises(SandboxInfrastructureError, match="lost") as caught:
        classify(BROKEN_OFF, state, 9.0)
    assert caught.value.command_started


def test_an_agent_that_failed_before_the_command_can_be_asked_again() -> None:
    with pytest.raises(SandboxInfrastructureError, match="memfd") as caught:
        classify(replace(BROKEN_OFF, started=False, failure="memfd_create: no"), None, 9.0)
    assert not caught.value.command_started


def test_a_byte_that_is_not_utf8_is_reported_in_pythons_words() -> None:
    facts = StreamFacts(10, Utf8Error(Utf8Fault.INVALID_START, 0xFF, 4, 5))
    action = classify(replace(ANSWER, result=replace(RESULT, stdout=facts)), None, 9.0)
    assert action.stdout.decode_error == (
        "'utf-8' codec can't decode byte 0xff in position 4: invalid start byte"
    )
