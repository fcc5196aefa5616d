"""What is built is whole, and what is installed from it works away from the checkout."""

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.markdown import ROOT

from runner import __version__
from runner.hashing import code_sha256
from runner.resources import bundled_profiles
from sandbox.policy import bundled_policies

NOT_SHIPPED = (".ci/", "results/")
BUILD_TIMEOUT_S = 120


def run(*command: object, cwd: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """A command as a user gives it: nothing of the test's own Python in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=check,
        timeout=600,
    )


@dataclass(frozen=True)
class Built:
    """A wheel and a source distribution of the checkout, and the wheel that is built of the latter."""

    wheel: Path
    sdist: Path
    again: Path

    def sources(self) -> set[str]:
        """The files of the source distribution."""
        with tarfile.open(self.sdist) as archive:
            return {name.partition("/")[2] for name in archive.getnames()}


def build(source: Path, out: Path, *targets: str) -> None:
    options = [word for target in targets for word in ("--target", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(out), *options],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=BUILD_TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    first, unpacked, second = (tmp_path_factory.mktemp(name) for name in ("dist", "source", "again"))
    build(ROOT, first, "sdist", "wheel")
    (sdist,) = first.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked)  # noqa: S202 - our own, a second ago
    (source,) = unpacked.iterdir()
    build(source, second, "wheel")
    (wheel,), (again,) = first.glob("*.whl"), second.glob("*.whl")
    return Built(wheel, sdist, again)


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


def tracked() -> set[str]:
    """The checkout's files by git; none where this is no checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=False, capture_output=True, text=True, timeout=30
    )
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def test_the_wheel_of_the_source_distribution_is_the_wheel(built: Built) -> None:
    assert contents(built.again) == contents(built.wheel)


def test_the_source_distribution_is_the_checkout(built: Built) -> None:
    files = tracked()
    if not files:
        pytest.skip("git does not answer here")
    assert {name for name in files - built.sources() if not name.startswith(NOT_SHIPPED)} == set()


def test_the_wheel_holds_whatever_the_packages_have(built: Built) -> None:
    here = {
        str(path.relative_to(ROOT))
        for package in ("runner", "sandbox")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert here - contents(built.wheel).keys() == set()


def test_our_code_has_one_name_in_a_checkout_and_in_the_package(built: Built, tmp_path: Path) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - our own
    assert code_sha256(tmp_path) == code_sha256(ROOT)


def test_the_version_stands_in_one_place(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        assert email.message_from_bytes(archive.read(name))["Version"] == __version__
    written = re.compile(rf"^(__version__|version) *= *[\"']{re.escape(__version__)}[\"']", re.MULTILINE)
    files = [ROOT / "pyproject.toml", *(ROOT / "runner").rglob("*.py"), *(ROOT / "sandbox").rglob("*.py")]
    found = [str(path.relative_to(ROOT)) for path in files if written.search(path.read_text("utf-8"))]
    assert found == ["runner/__init__.py"]


@pytest.fixture(scope="module")
def recount(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a new environment that holds the wheel and what the lock names, no checkout near it."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    uv = Path(sys.executable).with_name("uv")
    python = venv / "bin" / "python"
    run(uv, "venv", "--quiet", "--python", sys.executable, venv, cwd=venv.parent)
    lock = ROOT / "requirements" / "core.lock"
    install = (uv, "pip", "install", "--quiet", "--python", python)
    run(*install, "--require-hashes", "--requirement", lock, cwd=venv.parent)
    run(*install, "--no-deps", built.wheel, cwd=venv.parent)
    where = run(
        python, "-c", "import runner, sandbox; print(runner.__file__, sandbox.__file__)", cwd=venv.parent
    )
    assert where.stdout.count(str(venv)) == 2
    return venv / "bin" / "recount"


@pytest.mark.docker
def test_the_installed_command_finds_all_that_comes_with_it(recount: Path, tmp_path: Path) -> None:
    assert run(recount, "--version", cwd=tmp_path).stdout == f"recount {__version__}\n"
    shown = run(recount, "profiles", cwd=tmp_path).stdout
    assert all(name in shown for name in bundled_profiles())
    for name in bundled_policies():
        policy = json.loads(run(recount, "sandbox", "policy", name, "--json", cwd=tmp_path).stdout)
        assert len(policy["sha256"]) == 64


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_the_installed_command_runs_the_demo_from_anywhere(recount: Path, tmp_path: Path) -> None:
    done = run(recount, "eval", "demo", cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = (tmp_path / "results").glob("demo-*/evaluation_results.json")
    found = json.loads(results.read_text(encoding="utf-8"))
    expected = json.loads((ROOT / "datasets" / "demo_expected.json").read_text(encoding="utf-8"))
    assert found["complete"] is True
    assert {
        f"{row['task_id']}:{row['sample_index']}": row["score"]
        for row in found["datasets"]["demo"]["trajectories"]
    } == {key: one["score"] for key, one in expected.items()}
    assert (results.parent / "report.html").stat().st_size > 10_000, "the report's templates were not found"


@pytest.mark.docker
def test_without_the_image_the_installed_command_says_how_to_get_it(recount: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('image = "recount-of-nobody:latest"\n', encoding="utf-8")
    done = run(recount, "sandbox", "run", "id", "--policy", policy, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "recount-of-nobody:latest is not on this engine" in " ".join(done.stderr.split())
