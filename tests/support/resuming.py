"""Plans and journals for runs that stop and go on."""

from pathlib import Path
from typing import Any

from runner.engines.base import GenerationRequest
from runner.plan import Plan, make_plan
from support.builders import answer, bash, write_profile

ENGINE = {"kind": "openai", "model": "served", "base_urls": ["http://127.0.0.1:9/v1"]}


IDS = ("p0", "p1", "p2", "p3")


def plan_for(
    tmp_path: Path, *ids: str, samples: int = 2, extra: str = "", overrides: dict[str, Any] | None = None
) -> Plan:
    problems = dict.fromkeys(ids or IDS, "42")
    profile = write_profile(tmp_path / "in", ENGINE, problems=problems, samples=samples, extra=extra)
    return make_plan(str(profile), overrides=overrides or {})


def solve(request: GenerationRequest) -> str:
    """Two commands, then an answer that is wrong for p1."""
    if request.turn < 2:
        return bash(f"echo {request.turn}")
    return answer("41" if request.key.problem_id == "p1" else "42")
