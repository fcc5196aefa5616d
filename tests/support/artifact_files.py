"""A small report of our own: two repositories' files and their manifest, shaped like the published ones."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.artifact_server import ArtifactServer, sha256

HUB_REPOSITORY = "somebody/Tiny-Checkpoint"
CODE_REPOSITORY = "somebody/harness"
CODE_COMMIT = "ab" * 20
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"

MESSAGES_SOURCE = '''
"""Never run: running it would be a fault."""
raise SystemExit("this file was executed")


def math_react_messages(task, skill=""):
    skill_text = skill.strip()
    skill_block = f"\\n\\nBy the way:\\n{skill_text}" if skill_text else ""
    system = f"""You count things.

Write {{"tool": "{{name}}"}} or \\\\boxed{{<number>}}.{skill_block}"""
    user = (
        "Please count:\\n"
        f"{task.question}\\n"
        "and say how many."
    )
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": user},
    ]


def is_dangerous_bash_command(command):
    return "rm" in command


def run_bash(command, cwd, timeout, limit):
    if not command:
        return "something else"
    if is_dangerous_bash_command(command):
        return "We do not do that."
    try:
        output = cwd.run(command)
    except TimeoutError:
        return f"too slow: {timeout:.1f}"
    return output


def react_observation_text(name, text):
    return f"{name} says:\\n{text}"
'''
LOOP_SOURCE = """
import nothing_of_this_name


class Actor:
    def _sampling_params(self, *, seed):
        return SamplingParams(seed=seed, stop=["Halt:", "Stop:"])

    def rollout_batch(self, jobs):
        for state in jobs:
            cleaned = state["text"]
            final_match = "answer" in cleaned
            action = parse(cleaned)
            if final_match and not action:
                if state["used_bash"]:
                    continue
                warning = (
                    "Count with the tool first. "
                    "Then answer."
                )
                state["messages"].append(react_observation_text("form", warning))
                continue
            if not action:
                warning = (
                    'Neither tool nor answer. Write\\n'
                    '{"tool": "x"}'
                )
                state["messages"].append(react_observation_text("form", warning))
                continue
            name = action["name"]
            if name == "bash":
                command = str(action.get("command", ""))
                if not command.strip():
                    observation = "There was nothing to do."
                else:
                    observation = run_bash(command)
            else:
                observation = f"There is no {name}."
            state["messages"].append(react_observation_text(name, observation))
"""
PACK_DOCUMENT: dict[str, Any] = {
    "system_prompt": 'You count things.\n\nWrite {"tool": "{name}"} or \\boxed{<number>}.',
    "user_prompt_template": "Please count:\n{question}\nand say how many.",
    "observation_template": "{name} says:\n{text}",
    "format_check_name": "form",
    "answer_before_bash_warning": "Count with the tool first. Then answer.",
    "no_action_warning": 'Neither tool nor answer. Write\n{"tool": "x"}',
    "blocked_command_observation": "We do not do that.",
    "unknown_action_template": "There is no {name}.",
    "empty_command_observation": "There was nothing to do.",
    "stop": ["Halt:", "Stop:"],
}


def safetensors(tensors: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return a file of zeros in bfloat16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + bytes(end)


TENSORS: tuple[dict[str, tuple[int, ...]], ...] = (
    {"embed.weight": (640, 100), "norm.weight": (100,)},
    {"layer.weight": (300, 100)},
)
PARAMETERS = 640 * 100 + 100 + 300 * 100


def hub_files() -> dict[str, bytes]:
    """The model repository."""
    weight_map = {name: file for file, held in zip(SHARDS, TENSORS, strict=True) for name in held}
    updates = [
        {"generation": one, "seeds": [7, 8], "weights": [0.5, -0.5], "alpha": 0.25, "updates": [{"ok": True}]}
        for one in range(3)
    ]
    documents: dict[str, Any] = {
        INDEX: {"metadata": {}, "weight_map": weight_map},
        "config.json": {"model_type": "none", "architectures": ["None"]},
        "tokenizer.json": {"model": {"vocab": {"a": 0}}},
        "tokenizer_config.json": {"chat_template": "{{ messages }}"},
        "special_tokens_map.json": {},
        "replay_metadata.json": {
            "updates": 3,
            "generations": [0, 1, 2],
            "info": {"n_tensors": 2, "total_params": PARAMETERS},
            "hf_tensor_count": 3,
        },
        "replayed_history.json": [{"config": {"alpha": 0.25}}, {"generation": -1, "eval": {}}, *updates],
        "evaluation_results.json": {"results": [{"dataset": "dapo_test", "mean": 0.5}]},
    }
    files = {name: json.dumps(document, indent=1).encode() for name, document in documents.items()}
    files |= {name: safetensors(held) for name, held in zip(SHARDS, TENSORS, strict=True)}
    return files | {"README.md": b"# A card\n", ".gitattributes": b"", "images/plot.json": b"{}"}


def code_files() -> dict[str, bytes]:
    """The code repository."""
    problems = [{"id": str(one), "question": f"{one} + {one}", "answer": str(2 * one)} for one in range(400)]
    rows = json.dumps({"rows": [{"key": "0:sample00", "score": 1.0}] * 50}).encode()
    provenance = {
        "metrics": {
            "no_skill": {"dapo": {"mean_score": 0.5, "max@4": 0.75}},
            "skill": {"dapo": {"mean_score": 0.6}},
        },
        "files": [{"path": "eval4.json", "sha256": sha256(rows)}, {"path": "x", "sha256": "0" * 64}],
    }
    return {
        "data/dapo_test.jsonl": "".join(json.dumps(one) + "\n" for one in problems).encode(),
        "envs/messages.py": MESSAGES_SOURCE.encode(),
        "scripts/loop.py": LOOP_SOURCE.encode(),
        "results/eval4.json": rows,
        "results/provenance.json": json.dumps(provenance).encode(),
    }


@dataclass
class Report:
    """The files of both repositories and the manifest that was written for them."""

    hub: dict[str, bytes] = field(default_factory=hub_files)
    code: dict[str, bytes] = field(default_factory=code_files)

    def server(self) -> ArtifactServer:
        """Return a server of these files, not yet started."""
        return ArtifactServer(HUB_REPOSITORY, self.hub, CODE_REPOSITORY, CODE_COMMIT, self.code)

    def write_manifest(self, path: Path, *, extra: str = "", sizes: Mapping[str, int] | None = None) -> Path:
        """Write the manifest of the files as they are now; `sizes` are claimed in the place of no size."""
        lines = [
            'name = "tiny"',
            'profiles = ["final4"]',
            "[hub]",
            f'repository = "{HUB_REPOSITORY}"',
            'also = ["*.json", "*.jinja"]',
            "[github]",
            f'repository = "{CODE_REPOSITORY}"',
            f'commit = "{CODE_COMMIT}"',
        ]
        for shard in SHARDS:
            lines += _file("hub", shard, "checkpoint", "shard", sha=sha256(self.hub[shard]))
        for name, role in ((INDEX, "index"), ("config.json", "config"), ("tokenizer.json", "tokenizer")):
            lines += _file("hub", name, "checkpoint", role)
        for name in ("generation_config.json", "replay_metadata.json", "replayed_history.json"):
            role = "generation_config" if name.startswith("gen") else "lineage"
            lines += [*_file("hub", name, "checkpoint", role), "required = false"]
        lines += [*_file("hub", "evaluation_results.json", "report", "card_results"), "required = false"]
        for path_in, group, role in (
            ("data/dapo_test.jsonl", "datasets", "dataset"),
            ("envs/messages.py", "protocol", "messages_source"),
            ("scripts/loop.py", "protocol", "loop_source"),
            ("results/eval4.json", "report", "rows"),
            ("results/provenance.json", "report", "provenance"),
        ):
            sha = None if role == "provenance" else sha256(self.code[path_in])
            lines += _file("github", path_in, group, role, sha=sha)
            lines += [f'place = "{path_in.rpartition("/")[2]}"']
            lines += ['name = "dapo"'] if role == "dataset" else []
            if path_in in (sizes or {}):
                lines.append(f"size_bytes = {(sizes or {})[path_in]}")
        pack = json.dumps(PACK_DOCUMENT, sort_keys=True, ensure_ascii=False, indent=1) + "\n"
        lines += [
            "[pack]",
            'place = "pack.json"',
            f'sha256 = "{sha256(pack.encode())}"',
            f'system_prompt_sha256 = "{sha256(PACK_DOCUMENT["system_prompt"].encode())}"',
            "[weights]",
            f"parameters = {PARAMETERS}",
            "tensors = 3",
        ]
        for name in ("replay_metadata.json", "replayed_history.json"):
            lines += ["[[lineage]]", f'path = "{name}"', "first_generation = 0", "last_generation = 2"]
        lines += _claim("replay_metadata.json", "3 updates", ["updates"], [3])
        lines += _claim("replay_metadata.json", "2 tensors", ["n_tensors"], [2])
        lines += _claim("replay_metadata.json", "alpha", ["alpha"], [0.25])
        lines += _claim("replayed_history.json", "alpha", ["alpha"], [0.25])
        lines += [*_claim("evaluation_results.json", "a mean", ["mean"], [0.5, 0.7]), 'within = ["dapo"]']
        lines += [
            *_claim("results/provenance.json", "mean 0.5", ["mean_score"], [0.5]),
            'within = ["no_skill", "dapo"]',
        ]
        path.write_text("\n".join([*lines, extra]) + "\n", encoding="utf-8")
        return path

    def lay_out(self, directory: Path) -> Path:
        """Write both repositories below a directory, under their names."""
        for name, content in self.hub.items():
            _write(directory / HUB_REPOSITORY / name, content)
        for name, content in self.code.items():
            _write(directory / "harness" / name, content)
        return directory


def _file(origin: str, path: str, group: str, role: str, *, sha: str | None = None) -> list[str]:
    lines = [
        "[[files]]",
        f'origin = "{origin}"',
        f'path = "{path}"',
        f'group = "{group}"',
        f'role = "{role}"',
    ]
    return lines if sha is None else [*lines, f'sha256 = "{sha}"']


def _claim(path: str, what: str, keys: list[str], one_of: list[float]) -> list[str]:
    return [
        "[[claims]]",
        f'path = "{path}"',
        f'what = "{what}"',
        f"keys = {json.dumps(keys)}",
        f"one_of = {json.dumps(one_of)}",
    ]


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
