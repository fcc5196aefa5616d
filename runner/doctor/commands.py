"""Where commands would run: the broker or the Docker engine, the sandbox image, and one real action."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from anyio.to_thread import run_sync

from runner.doctor.host import DAEMON_TIMEOUT_S, Host
from runner.doctor.place import SELINUX_REMEDY, engine_address, engine_remedy, selinux_enforces
from runner.doctor.question import Question
from runner.doctor.report import Finding, failed, ok, skipped, warning
from runner.groups import first_error_only
from sandbox import BrokerSandbox, DockerSandbox, Sandbox, SandboxError
from sandbox.preflight import BUILD_REMEDY

SANDBOX, IMAGE, ACTION = "sandbox", "sandbox image", "one action"
BROKER_WAIT_S = 10.0
"""How long a broker may take to come up: it starts beside the runner."""
ACTION_TIMEOUT_S = 20.0
SLOW_ACTION_S = 5.0
SCRIPT = "python3 -c 'print(6 * 7)'"
SAYS = "42"
SHOWN_DIGEST = len("sha256:") + 12
RUN_ID = "doctor"

Tell = Callable[[str, Finding], None]
Open = Callable[[Question], Sandbox]


def open_sandbox(question: Question) -> Sandbox:
    """Return the sandbox that a run would have, but for patience: nothing ahead, nothing tried again."""
    run_id = f"{RUN_ID}-{time.time_ns():x}"
    if question.broker is not None:
        return BrokerSandbox(question.broker, run_id, wait_s=BROKER_WAIT_S)
    impatient = {"prewarm": False, "start_attempts": 1, "start_timeout_s": DAEMON_TIMEOUT_S}
    return DockerSandbox(question.policy.model_copy(update=impatient), run_id, sweep_others=False)


async def examine_commands(
    question: Question, host: Host, tell: Tell, *, sandbox: Sandbox | None, open_one: Open = open_sandbox
) -> None:
    """Tell of the three checks, as far as each can be made. `sandbox` is one that is open already."""
    if sandbox is not None:
        await _ask(sandbox, question, host, {}, tell)
        return
    info: Mapping[str, Any] = {}
    if question.broker is None:
        try:
            info = await run_sync(
                host.engine_info, host.environment.get("DOCKER_HOST"), abandon_on_cancel=True
            )
        except SandboxError as error:
            _fail(tell, failed(error.message, engine_remedy(host, error.remedy)), (SANDBOX, IMAGE, ACTION))
            return
    opened = False
    try:
        with first_error_only():
            async with open_one(question) as own:
                opened = True
                await _ask(own, question, host, info, tell)
    except SandboxError as error:
        if opened:
            raise  # told by whoever keeps the checks' names
        remedy = _unopened_remedy(error, question, host)
        if question.broker is None:
            tell(SANDBOX, judge_engine(info, host))
            _fail(tell, failed(error.message, remedy), (IMAGE, ACTION))
        else:
            _fail(tell, failed(error.message, remedy), (SANDBOX, IMAGE, ACTION))


def _fail(tell: Tell, finding: Finding, names: tuple[str, ...]) -> None:
    """Fail the first of the checks; the others hang on it."""
    tell(names[0], finding)
    for name in names[1:]:
        tell(name, skipped(f"needs {names[0]}"))


def _unopened_remedy(error: SandboxError, question: Question, host: Host) -> str:
    remedy = error.remedy or "look at the Docker engine's own log"
    if question.broker is None:
        return remedy
    remedy = f"{remedy}; docker compose logs tells what a broker of docker-compose.yml said"
    return f"{remedy}; {SELINUX_REMEDY}" if selinux_enforces(host) else remedy


async def _ask(sandbox: Sandbox, question: Question, host: Host, info: Mapping[str, Any], tell: Tell) -> None:
    identity = await sandbox.identity()
    notes = (await sandbox.capacity()).notes
    tell(SANDBOX, judge_sandbox(identity, notes, question, judge_engine(info, host)))
    tell(IMAGE, judge_image(identity))
    tell(ACTION, await _act(sandbox))


def judge_engine(info: Mapping[str, Any], host: Host) -> Finding:
    """Say which engine this is, and what is known to go wrong with its kind. Pure."""
    if not info:
        return ok("")
    said = f"Docker {info.get('ServerVersion', '')} on {engine_address(host)}"
    system = str(info.get("OperatingSystem", ""))
    security = " ".join(str(one) for one in info.get("SecurityOptions") or ())
    if str(info.get("DockerRootDir", "")).startswith("/var/snap/"):
        return warning(
            f"{said}, from snap",
            "snap's Docker sees files below the home directory alone: keep checkout, models and results"
            " there, or install Docker's own packages",
        )
    if "rootless" in security:
        limited = info.get("CgroupDriver") not in {None, "none"}
        return warning(
            f"{said}, rootless" + ("" if limited else ", without control groups"),
            "limits of memory and processes hold only with cgroup 2 and delegation to the user:"
            " `recount sandbox check` tries them; GPUs need no-cgroups = true in NVIDIA's configuration",
        )
    if "Docker Desktop" in system:
        return warning(
            f"{said}, Docker Desktop",
            "its engine runs in a virtual machine, with that machine's memory and no other GPUs than it has",
        )
    if "selinux" in security and selinux_enforces(host):
        return warning(f"{said}, with SELinux enforcing", SELINUX_REMEDY)
    return ok(said)


def judge_sandbox(
    identity: Mapping[str, str], notes: tuple[str, ...], question: Question, engine: Finding
) -> Finding:
    """Say what commands would go through and under which policy. Pure."""
    where = engine.detail or f"broker on {question.broker}, Docker {identity.get('engine_version', '')}"
    said = f"{where}, policy {identity.get('policy', '')}"
    said = "; ".join((said, *notes))
    digest = identity.get("policy_sha256")
    if digest is not None and digest != question.policy.digest():
        return warning(
            f"{said}, which is not the profile's ({question.policy.name})",
            f"start the broker with --policy {question.policy.name}:"
            " under another one a run is no reproduction",
        )
    return Finding(engine.state, said, engine.remedy)


def judge_image(identity: Mapping[str, str]) -> Finding:
    """Say which image commands run in. Pure."""
    contents = identity.get("image_contents_sha256", "")
    said = f"{identity.get('image', '')} {identity.get('image_id', '')[:SHOWN_DIGEST]}"
    if not contents:
        return warning(
            f"{said}, which does not say what is installed in it", f"build it anew: {BUILD_REMEDY}"
        )
    return ok(f"{said}, contents {contents[:12]}, agent {identity.get('agent_protocol', '')}")


async def _act(sandbox: Sandbox) -> Finding:
    started = time.monotonic()
    workspace = await sandbox.open(RUN_ID)
    try:
        result = await workspace.run(SCRIPT, ACTION_TIMEOUT_S)
    finally:
        await workspace.close()
    took = time.monotonic() - started
    said = result.stdout.head.decode("utf-8", "replace").strip()
    if result.exit_code != 0 or said != SAYS:
        told = result.stderr.head.decode("utf-8", "replace").strip().splitlines()
        return failed(
            f"{SCRIPT} said {said!r} and exited with {result.exit_code}" + (f": {told[-1]}" if told else ""),
            f"`recount sandbox check` tries every control; {BUILD_REMEDY} builds the image anew",
        )
    if took > SLOW_ACTION_S:
        return warning(
            f"a fresh container answered after {took:.1f} s",
            "the engine is slow: look at the load of this machine and at its disk",
        )
    return ok(f"python3 ran in a fresh container, {took * 1000:.0f} ms with its making")
