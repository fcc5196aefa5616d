"""The README's example of the sandbox alone does what stands behind it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.docker
def test_the_readme_s_example_prints_what_it_says(tmp_path: Path) -> None:
    (code,) = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    (promised,) = re.findall(r"print\(.*\)  # (.*)", code)

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{promised}\n")
