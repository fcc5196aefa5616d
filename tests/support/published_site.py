"""Everything that a published evaluation needs, small and ours: repositories, figures, rows, a profile.

Its model is a script. What is fetched for it, where it is looked for and what it is held against is as for a
real one.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from support.artifact_files import Report
from support.builders import LIMITS_TOML, SAMPLING_TOML, answer, bash, write_lines

SAMPLES = 2
PROBLEMS = 8


def is_right(row: int, sample: int) -> bool:
    """Whether the published sample is right: three problems in four are solved at times."""
    return row % 4 != 0 and (row + sample) % 3 != 0


def report() -> Report:
    """Return the repositories' files, with a data set of a few problems and the rows of an evaluation."""
    made = Report()
    problems = [
        {"id": f"p{row}", "question": f"How much is {row} + {row}?", "answer": str(2 * row)}
        for row in range(PROBLEMS)
    ]
    made.code["data/dapo_test.jsonl"] = "".join(json.dumps(one) + "\n" for one in problems).encode()
    rows = [
        {
            "task_id": f"p{row}",
            "row_index": row,
            "sample_index": sample,
            "score": float(is_right(row, sample)),
        }
        for row in range(PROBLEMS)
        for sample in range(SAMPLES)
    ]
    made.code["results/eval4.json"] = json.dumps({"dapo_eval": rows}).encode()
    return made


@dataclass(frozen=True)
class Inputs:
    """What lies beside the run: its profile, and the manifest of what it fetches."""

    profile: Path
    manifest: Path


def write_inputs(directory: Path, made: Report, *, solved: bool = True) -> Inputs:
    """Write profile, script, published figures and manifest. Unless `solved`, every answer is wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    right = [[float(is_right(row, sample)) for sample in range(SAMPLES)] for row in range(PROBLEMS)]
    figures = {
        "mean": sum(map(sum, right)) / (PROBLEMS * SAMPLES),
        "max_at_k": sum(map(max, right)) / PROBLEMS,
    }
    published = {
        "checkpoint": "somebody/Tiny-Checkpoint",
        "problems": {"dapo": PROBLEMS},
        "reports": {"final4": {"samples": SAMPLES, "figures": {"dapo": figures}}},
        "references": {"final4": ["final4"]},
        "rows_of": "final4",
    }
    (directory / "published.json").write_text(json.dumps(published), encoding="utf-8")
    write_lines(
        directory / "script.jsonl",
        (
            {
                "dataset": "dapo",
                "id": f"p{row}",
                "sample": sample,
                "completions": [
                    bash(f"echo $(({row} + {row}))"),
                    answer(str(2 * row) if solved and is_right(row, sample) else "wrong"),
                ],
            }
            for row in range(PROBLEMS)
            for sample in range(SAMPLES)
        ),
    )
    profile = directory / "final4.toml"
    profile.write_text(
        f'name = "final4"\npack = "datasets/pack.json"\nsamples = {SAMPLES}\n{LIMITS_TOML}{SAMPLING_TOML}\n'
        '[[datasets]]\nname = "dapo"\npath = "datasets/dapo_test.jsonl"\nbase_seed = 1000\n\n'
        '[engine]\nkind = "scripted"\nscript = "script.jsonl"\n\n'
        '[verdict]\npublished = "published.json"\nmargin = 0.4\n',
        encoding="utf-8",
    )
    return Inputs(profile, made.write_manifest(directory / "manifest.toml"))
