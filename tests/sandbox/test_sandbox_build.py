"""The sandbox image is built from what comes with the package, and a build that fails says so."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

import sandbox.build as building
from sandbox import SandboxPrerequisiteError
from sandbox.build import build_image, context_files

ROOT = Path(__file__).resolve().parents[2]


class Engine:
    """Keeps what it was asked for, and answers as the engine does: a stream of small documents."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: dict[str, Any] = {}

    def build(self, *, fileobj: io.BytesIO, **options: Any) -> list[dict[str, Any]]:
        with tarfile.open(fileobj=fileobj) as archive:
            self.asked = {
                **options,
                "files": {one.name: (one.uid, one.mtime) for one in archive.getmembers()},
            }
        return list(self.answers)


def needed() -> set[str]:
    """What the Dockerfile copies from its context."""
    lines = (ROOT / "Dockerfile.sandbox").read_text(encoding="utf-8").splitlines()
    named = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from=" not in line]
    return {name for name in named if not name.endswith("/")} | {
        f"{name}{path.name}" for name in named if name.endswith("/") for path in (ROOT / name).iterdir()
    }


def test_the_engine_gets_all_that_the_dockerfile_copies_and_no_more() -> None:
    engine = Engine()
    build_image(engine, "mine:1", print)  # type: ignore[arg-type]
    assert set(engine.asked["files"]) == needed() | {"Dockerfile.sandbox"}
    assert engine.asked["tag"] == "mine:1"


def test_two_installations_send_the_same_bytes() -> None:
    engine = Engine()
    build_image(engine, "mine:1", print)  # type: ignore[arg-type]
    assert set(engine.asked["files"].values()) == {(0, 0)}


def test_an_installed_package_has_its_own_copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "_CHECKOUT", tmp_path)
    assert {name: path.name for name, path in context_files().items() if path.parent.name == "image"} == {
        "Dockerfile.sandbox": "Dockerfile.sandbox",
        "requirements/sandbox.lock": "sandbox.lock",
    }


def test_a_step_that_fails_is_a_message_with_a_remedy_after_the_lines_before() -> None:
    heard: list[str] = []
    engine = Engine({"stream": "Step 1/9 : FROM x\n"}, {"stream": "\n"}, {"error": "no such host\n"})
    with pytest.raises(SandboxPrerequisiteError, match="cannot be built: no such host") as caught:
        build_image(engine, "mine:1", heard.append)  # type: ignore[arg-type]
    assert heard == ["Step 1/9 : FROM x"]
    assert "network" in caught.value.remedy


def test_another_base_is_handed_on() -> None:
    engine = Engine()
    build_image(engine, "mine:1", print, base_image="other:1")  # type: ignore[arg-type]
    assert engine.asked["buildargs"] == {"BASE_IMAGE": "other:1"}
