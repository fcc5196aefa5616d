"""Protocol pack, rules, problems and profiles for tests, all of our own words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.datasets import Problem
from runner.engines.base import Sampling
from runner.protocol.prompt import ProtocolPack
from runner.trajectory import Job, Limits, Rules

PACK_DOCUMENT: dict[str, Any] = {
    "system_prompt": "Use the shell, then answer.",
    "user_prompt_template": "Q: {question}",
    "observation_template": "<{name}> {text}",
    "format_check_name": "form",
    "answer_before_bash_warning": "compute first",
    "no_action_warning": "neither action nor answer",
    "blocked_command_observation": "not allowed",
    "unknown_action_template": "no action {name}",
    "empty_command_observation": "nothing to run",
    "stop": ["<form>"],
}
PACK = ProtocolPack.from_mapping(PACK_DOCUMENT, "tests")
SAMPLING = Sampling(
    temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, presence_penalty=1.5, repetition_penalty=1.1
)
LIMITS = Limits(
    max_turns=4,
    context_tokens=4000,
    max_tokens_per_turn=500,
    tool_timeout_s=2.0,
    observation_limit_chars=200,
)
RULES = Rules(PACK, LIMITS, SAMPLING)
BASE_SEED = 1000

SAMPLING_TOML = """
[sampling]
temperature = 0.7
top_p = 0.9
top_k = 40
min_p = 0.05
presence_penalty = 1.5
repetition_penalty = 1.1
"""
LIMITS_TOML = """
[limits]
max_turns = 4
context_tokens = 4000
max_tokens_per_turn = 500
tool_timeout_s = 2.0
observation_limit_chars = 200
"""


def bash(command: str) -> str:
    """A completion that runs `command`."""
    return f"I run it.\nAction: {json.dumps({'name': 'bash', 'arguments': {'command': command}})}"


def answer(text: str) -> str:
    """A completion that ends a trajectory."""
    return f"So.\nFinal answer: \\boxed{{{text}}}"


def job(problem_id: str = "p0", *, row: int = 0, sample: int = 0, gold: str = "42") -> Job:
    """One trajectory to run."""
    return Job("set", Problem(problem_id, row, "How many?", gold), sample, BASE_SEED)


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_profile(
    directory: Path,
    engine: Mapping[str, object],
    *,
    problems: Mapping[str, str] | None = None,
    samples: int = 1,
    extra: str = "",
) -> Path:
    """Write a profile with its pack and its data set `set`, whose problems map an id to a gold answer."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pack.json").write_text(json.dumps(PACK_DOCUMENT), encoding="utf-8")
    write_lines(
        directory / "set.jsonl",
        (
            {"id": name, "question": f"How many, {name}?", "answer": gold}
            for name, gold in (problems or {"p0": "42"}).items()
        ),
    )
    engine_toml = "\n".join(f"{key} = {json.dumps(value)}" for key, value in engine.items())
    profile = directory / "profile.toml"
    profile.write_text(
        f'name = "test"\npack = "pack.json"\nsamples = {samples}\n{LIMITS_TOML}{SAMPLING_TOML}\n'
        f'[[datasets]]\nname = "set"\npath = "set.jsonl"\nbase_seed = {BASE_SEED}\n\n'
        f"[engine]\n{engine_toml}\n\n[retry]\nattempts = 3\nwait_s = 0.0\n{extra}",
        encoding="utf-8",
    )
    return profile


def write_scripted_profile(directory: Path, ids: Sequence[str]) -> Path:
    """Write a profile whose engine replays a script, for a run in a process of its own: two commands each."""
    profile = write_profile(
        directory,
        {"kind": "scripted", "script": "script.jsonl"},
        problems=dict.fromkeys(ids, "42"),
        extra="[concurrency]\ntrajectories = 2\n",
    )
    completions = [bash("true"), bash("true"), answer("42")]
    write_lines(
        directory / "script.jsonl",
        ({"dataset": "set", "id": one, "sample": 0, "completions": completions} for one in ids),
    )
    return profile
