"""The test server speaks as the hub does: its own client takes files from it."""

import os
import subprocess
import sys

import pytest
from support.artifact_files import HUB_REPOSITORY, SHARDS
from support.artifact_server import HUB_COMMIT
from support.artifact_site import Site

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

DOWNLOAD = """
import sys
from huggingface_hub import HfApi, hf_hub_download
for name in sys.argv[2:]:
    print(hf_hub_download(sys.argv[1], name))
info = HfApi().model_info(sys.argv[1], revision="main", files_metadata=True)
print(info.sha, len(info.siblings))
"""


def test_the_hub_s_own_client_fetches_large_and_small_files(site: Site) -> None:
    names = [SHARDS[0], "config.json"]
    done = subprocess.run(
        [sys.executable, "-c", DOWNLOAD, HUB_REPOSITORY, *names],
        env=site.process_environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1"),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *paths, info = done.stdout.splitlines()
    for name, path in zip(names, paths, strict=True):
        assert os.sep + HUB_COMMIT + os.sep in path
        with open(path, "rb") as file:  # noqa: PTH123 - a path the client printed
            assert file.read() == site.report.hub[name]
    assert info == f"{HUB_COMMIT} {len(site.report.hub)}"
