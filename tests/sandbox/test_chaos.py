"""A short round of what `chaos.py` does at length."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest
from chaos import Chaos, Plan

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def test_with_everything_killed_at_random_answers_are_right_or_typed_failures(
    tmp_path: Path, engine_api: docker.APIClient
) -> None:
    plan = Plan(
        seed=3,
        clients=2,
        trajectories=6,
        actions=8,
        broker_kills=2,
        client_kills=1,
        container_kills=2,
        interval_s=2.0,
    )
    outcome = Chaos(plan, tmp_path).run()
    assert outcome.wrong == []
    assert outcome.unfinished == 0
    assert outcome.left == [(0, 0)] * plan.clients
    assert outcome.broker_exit_code == 0
    assert outcome.kills["broker"] == plan.broker_kills
    assert outcome.right > plan.trajectories
