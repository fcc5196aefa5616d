"""Each thing that a user can mend is told apart from the others, before anything runs."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from pathlib import Path

import anyio
import docker
import pytest

from sandbox import DockerSandbox, Policy, SandboxInfrastructureError, SandboxPrerequisiteError
from sandbox.frames import AGENT_LABEL
from sandbox.preflight import connect

NOBODY = 65534


def test_an_engine_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxPrerequisiteError, match=r"does not answer on .*absent") as caught:
        connect(f"unix://{tmp_path}/absent.sock")
    assert "DOCKER_HOST" in caught.value.remedy


def test_a_socket_that_nobody_listens_on_is_no_engine(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    with pytest.raises(SandboxPrerequisiteError, match="Connection refused"):
        connect(f"unix://{path}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a socket that a child may not open")
def test_a_missing_permission_is_told_from_a_missing_engine(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents):
        if directory.owner() == "root" and directory != Path("/") and directory != Path("/tmp"):
            directory.chmod(0o755)
    path = tmp_path / "locked.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o600)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            try:
                connect(f"unix://{path}")
            except SandboxPrerequisiteError as error:
                os.write(write_end, str(error).encode())
            finally:
                os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            message = pipe.read().decode()
        os.waitpid(child, 0)
    assert message.startswith("no permission to use the Docker engine's socket")


async def start(policy: Policy, run_id: str = "test-preflight") -> None:
    async with DockerSandbox(policy, run_id):
        pytest.fail("it started")


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_an_absent_image_comes_with_the_command_that_builds_it() -> None:
    with pytest.raises(SandboxPrerequisiteError, match="not on this engine") as caught:
        await start(Policy(image="recount-no-such-image:latest"))
    assert "recount sandbox build" in caught.value.remedy


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("labels", "message"),
    [("", "holds no sandbox agent"), (f"LABEL {AGENT_LABEL}=999", "speaks version 999")],
)
async def test_an_image_without_our_agent_is_refused(
    engine_api: docker.APIClient, labels: str, message: str
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    engine_api.import_image_from_data(
        archive.getvalue(),
        repository="recount-test-image",
        tag="latest",
        changes=[labels] if labels else None,
    )
    try:
        with pytest.raises(SandboxPrerequisiteError, match=message):
            await start(Policy(image="recount-test-image:latest"))
    finally:
        engine_api.remove_image("recount-test-image:latest")


@pytest.mark.docker
@pytest.mark.anyio
@pytest.mark.usefixtures("engine_api")
async def test_a_runtime_that_the_engine_lacks_is_named() -> None:
    with pytest.raises(SandboxPrerequisiteError, match="no runtime 'imaginary'"):
        await start(Policy(runtime="imaginary"))


@pytest.mark.docker
@pytest.mark.anyio
async def test_the_identity_says_what_commands_run_in(docker_sandbox: DockerSandbox) -> None:
    identity = await docker_sandbox.identity()
    assert identity["kind"] == "docker"
    assert identity["image_id"].startswith("sha256:")
    assert len(identity["image_contents_sha256"]) == 64
    assert len(identity["policy_sha256"]) == 64
    assert identity["runtime"]


class SilentEngine:
    """Accepts connections and never answers."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def close(self) -> None:
        self._listener.close()


@pytest.mark.anyio
async def test_an_engine_that_hangs_is_given_up(tmp_path: Path) -> None:
    engine = SilentEngine(tmp_path / "silent.sock")
    try:
        with anyio.fail_after(20):
            with pytest.raises(
                (SandboxPrerequisiteError, SandboxInfrastructureError), match="does not answer"
            ):
                async with DockerSandbox(Policy(start_timeout_s=1), "run", base_url=engine.url):
                    pytest.fail("it started")
    finally:
        engine.close()
