"""What may run at once fits the host, whatever the policy wishes for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.admission import BASE_RESERVE_BYTES, admit
from sandbox.policy import GIB, MIB, Policy, bundled_policies, load_policy


def test_a_large_host_grants_the_wishes_without_a_note() -> None:
    admission = admit(load_policy("report"), host_bytes=1024 * GIB, cores=32)
    assert (admission.actions, admission.workspaces, admission.notes) == (8, 128, ())


def test_a_quarter_of_the_cores_is_wished_for_above_eight() -> None:
    assert admit(load_policy("report"), host_bytes=2048 * GIB, cores=128).actions == 32


def test_the_policy_says_how_many_where_it_does() -> None:
    policy = Policy(actions_at_once=3, workspaces_at_once=5)
    admission = admit(policy, host_bytes=64 * GIB, cores=64)
    assert (admission.actions, admission.workspaces) == (3, 5)


def test_a_small_host_lowers_both_and_says_so() -> None:
    admission = admit(load_policy("report"), host_bytes=24 * GIB, cores=2)
    assert admission.actions == 2
    assert 2 <= admission.workspaces < 128
    assert [note.split(":")[0] for note in admission.notes] == ["commands at once", "workspaces at once"]


def test_what_engines_need_counts_first() -> None:
    policy = Policy(memory_bytes=8 * GIB, reserved_bytes=100 * GIB)
    assert admit(policy, host_bytes=128 * GIB, cores=8).actions < 8
    assert admit(policy.model_copy(update={"reserved_bytes": 0}), host_bytes=128 * GIB, cores=8).actions == 8


@pytest.mark.parametrize("host_bytes", [0, GIB, 4 * GIB])
def test_a_host_that_is_too_small_gets_one_command_and_a_warning(host_bytes: int) -> None:
    admission = admit(load_policy("report"), host_bytes=host_bytes, cores=1)
    assert admission.actions == 1
    assert "may run out of it" in admission.notes[-1]


def test_the_demo_fits_a_laptop() -> None:
    admission = admit(load_policy("demo"), host_bytes=8 * GIB, cores=4)
    assert (admission.actions, admission.workspaces, admission.notes) == (6, 16, ())


@pytest.mark.parametrize("name", bundled_policies())
def test_a_bundled_policy_runs_more_than_one_command_on_a_workstation(name: str) -> None:
    assert admit(load_policy(name), host_bytes=32 * GIB, cores=8).actions > 1


@given(
    memory_mib=st.integers(16, 16_384),
    workspace_mib=st.integers(1, 2048),
    reserved_gib=st.integers(0, 64),
    host_gib=st.integers(0, 512),
    cores=st.integers(1, 256),
)
def test_all_that_is_admitted_fits_or_is_said_not_to(
    memory_mib: int, workspace_mib: int, reserved_gib: int, host_gib: int, cores: int
) -> None:
    policy = Policy(
        memory_bytes=memory_mib * MIB, workspace_bytes=workspace_mib * MIB, reserved_bytes=reserved_gib * GIB
    )
    admission = admit(policy, host_bytes=host_gib * GIB, cores=cores)
    needed = admission.actions * policy.memory_bytes + admission.workspaces * policy.workspace_bytes
    fits = needed + policy.reserved_bytes + BASE_RESERVE_BYTES <= host_gib * GIB
    assert fits or "may run out of it" in admission.notes[-1]
    assert 1 <= admission.actions <= max(8, cores // 4)
    assert 1 <= admission.workspaces <= policy.workspaces_at_once
