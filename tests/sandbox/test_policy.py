"""A policy that cannot work is refused where it enters."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from sandbox.policy import Policy, default_environment


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", ""),
        ("memory_bytes", 1),
        ("pids", 0),
        ("nofile", 3),
        ("workspace_bytes", 0),
        ("capture_bytes", -1),
        ("start_timeout_s", 0),
        ("hostname", "two words"),
        ("environment", {"A=B": "c"}),
        ("environment", {"A": "\0"}),
        ("uid_base", 0),
        ("uid_base", 2**31),
        ("privileged", True),
    ],
)
def test_a_value_that_cannot_work_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        Policy(**{field: value})


def test_the_environment_is_an_allow_list_of_ours() -> None:
    assert Policy().environment == default_environment()
    assert "SSH_AUTH_SOCK" not in Policy().environment


def test_the_digest_changes_with_the_policy() -> None:
    assert Policy().digest() == Policy().digest()
    assert Policy().digest() != Policy(pids=17).digest()
