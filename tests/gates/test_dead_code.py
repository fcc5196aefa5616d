"""vulture finds what nothing uses; that the repository has nothing of the kind is checked by `./test`."""

import shutil
import subprocess
import sys
from pathlib import Path

from support.markdown import ROOT

VULTURE = Path(sys.executable).with_name("vulture")
FORGOTTEN = """
from pydantic import BaseModel

FORGOTTEN_LIMIT_BYTES = 7


class Settings(BaseModel):
    model_config = {}
    wanted_s: float = 1.0
    forgotten_s: float = 1.0


def forgotten(settings: Settings) -> float:
    return settings.wanted_s
"""


def test_a_function_a_limit_and_a_setting_that_nobody_uses_are_found(tmp_path: Path) -> None:
    for place in ("runner", "sandbox", "benchmarks", "tools"):
        (tmp_path / place).mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tools" / "alive.py", tmp_path / "tools")
    (tmp_path / "runner" / "settings.py").write_text(FORGOTTEN, encoding="utf-8")
    done = subprocess.run([VULTURE], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    assert {line.split("'")[1] for line in done.stdout.splitlines()} == {
        "FORGOTTEN_LIMIT_BYTES",
        "forgotten_s",
        "forgotten",
    }
