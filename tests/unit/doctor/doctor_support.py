"""Machines for the doctor to look at, and questions to ask about them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.artifacts import Manifest, manifest_for
from runner.artifacts.settings import FetchSettings
from runner.doctor import Host, Question
from runner.doctor.host import Reply, Space
from runner.engines.vllm.gpu import Driver, Gpu
from runner.profile import find_profile, load_profile
from sandbox.policy import load_policy

GIB = 1 << 30
NOW = 1_796_000_000.0
"""In November 2026."""
VERSIONS = {"torch": "2.10.0+cu128", "vllm": "0.19.1", "transformers": "4.57.6", "ray": "2.56.1"}
INFO = {"ServerVersion": "28.2", "OperatingSystem": "Debian GNU/Linux 12", "CgroupDriver": "systemd"}


class Net:
    """Servers that answer as told; remembers who was asked, and with which headers."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies) or [Reply(200, NOW)]
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []

    async def ask(self, url: str, headers: Mapping[str, str]) -> Reply:
        self.asked.append(url)
        self.headers.append(headers)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def a_host(
    files: Mapping[str, str] | None = None, *, environment: Mapping[str, str] | None = None, **changes: Any
) -> Host:
    """A node of four large GPUs with everything in order, but for what is said.

    `files` are all that its file system shows of itself, beside what a test has made.
    """
    there = dict(files or {})
    given: dict[str, Any] = {
        "environment": environment or {},
        "home": Path("/home/someone"),
        "uid": 1000,
        "python": "3.10.12",
        "gpus": lambda: tuple(Gpu("H100", 81559 << 20, (9, 0), index) for index in range(4)),
        "driver": lambda: Driver("570.86.15", usable=True, cuda=(12, 8)),
        "version_of": VERSIONS.get,
        "space": lambda _path: Space(500 * GIB, 900 * GIB, device=1),
        "read": lambda path: there.get(str(path)),
        "exists": lambda path: str(path) in there,
        "try_write": lambda _path: None,
        "now": lambda: NOW,
        "engine_info": lambda _url: INFO,
        "ask": Net().ask,
    }
    return Host(**(given | changes))


def a_question(
    profile: str = "final4", *, manifest: Manifest | None = None, offline: bool = False, **changes: Any
) -> Question:
    """What a profile's run would ask."""
    overrides = changes.pop("overrides", {})
    loaded = load_profile(profile, overrides)
    given: dict[str, Any] = {
        "profile": loaded,
        "profile_path": find_profile(profile),
        "policy": load_policy(loaded.sandbox.policy),
        "fetching": FetchSettings(offline=offline),
        "manifest": manifest or manifest_for(loaded.name),
        "overrides": overrides,
        "models_dir": Path("/nowhere/models"),
        "data_dir": Path("/nowhere/datasets"),
        "results_dir": Path("/nowhere/results"),
    }
    return Question(**(given | changes))
