"""What `recount sandbox` shows: tables, and what a command printed, cleaned of what a terminal acts on."""

import json
import signal
import sys
from pathlib import Path

from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.cli.output import err
from runner.errors import UserError
from sandbox import ActionResult, Policy
from sandbox.attack import Outcome
from sandbox.attack_rules import Verdict
from sandbox.check_rules import Check
from sandbox.policy import MIB

FIRST_LINE_CHARS = 48
COMMAND_CHARS = 40
REASON_CHARS = 300
SIGNAL_EXIT = 128
# `timeout` of coreutils exits with it too.
TIMED_OUT_EXIT = 124


def shell_code(result: ActionResult) -> int:
    """What a shell would exit with."""
    if result.exit_code is None:
        return TIMED_OUT_EXIT
    return SIGNAL_EXIT - result.exit_code if result.exit_code < 0 else result.exit_code


def limits_line(result: ActionResult) -> str | None:
    """Which limits bit, and how a command ended that did not end itself; None if there is nothing to say."""
    parts = [f"limit reached: {limit.value}" for limit in result.limits]
    if result.exit_code is not None and result.exit_code < 0:
        parts.append(f"killed by {_signal_name(-result.exit_code)}")
    for name, stream in (("stdout", result.stdout), ("stderr", result.stderr)):
        if stream.dropped_bytes:
            parts.append(f"{stream.dropped_bytes} bytes of {name} were dropped from its middle")
    return "; ".join(parts) or None


def pass_on(result: ActionResult) -> None:
    """Bytes as they are to a pipe, cleaned text to a terminal; limits on stderr."""
    for stream, captured in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
        data = captured.head + captured.tail
        if stream.isatty():
            stream.write(clean_text(data.decode("utf-8", "replace"), keep_lines=True))
            if data and not data.endswith(b"\n"):
                stream.write("\n")
        else:
            stream.flush()
            stream.buffer.write(data)
        stream.flush()
    told = limits_line(result)
    if told is not None:
        err.print(Text(f"sandbox: {told}"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def one_line(text: str, limit_chars: int = FIRST_LINE_CHARS) -> str:
    """One harmless line of bounded length."""
    return clean_text(text, keep_lines=False, limit_chars=limit_chars)


def columns(*columns: str) -> Table:
    """A table with these columns."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def shown_setting(name: str, value: object) -> Text:
    """A policy's setting as a person reads it."""
    if isinstance(value, dict):
        return Text("\n".join(f"{key}={one_line(str(each), REASON_CHARS)}" for key, each in value.items()))
    if value is None:
        return Text("the engine's" if name == "runtime" else "not set")
    if name.endswith("_bytes") and isinstance(value, int) and value:
        return Text(f"{value}  ({value / MIB:g} MiB)")
    return Text(one_line(str(value), REASON_CHARS))


def checks_table(found: tuple[Check, ...]) -> Table:
    """Controls, and whether they hold."""
    table = columns("control", "expected", "seen", "ok")
    for each in found:
        mark = Text("yes", style="green") if each.ok else Text("NO", style="bold red")
        cells = (each.control, each.expected, each.seen)
        table.add_row(*(Text(one_line(cell, REASON_CHARS)) for cell in cells), mark)
    return table


_STYLES = {Verdict.CONTAINED: "green", Verdict.LOOK: "yellow", Verdict.BREACH: "bold red"}


def attacks_table(outcomes: list[Outcome]) -> Table:
    """What happened beside what must happen."""
    table = columns("attack", "what happened", "must happen", "verdict")
    for each in outcomes:
        verdict = Text(each.verdict.value, style=_STYLES[each.verdict])
        for reason in each.reasons:
            verdict.append(f"\n{one_line(reason, REASON_CHARS)}")
        table.add_row(
            Text(one_line(each.attack.attack_id)),
            Text(happened(each)),
            Text(one_line(each.attack.expect, REASON_CHARS)),
            verdict,
        )
    return table


def happened(outcome: Outcome) -> str:
    """Exit code, limits, seconds, and the first line of what it printed."""
    result = outcome.seen.result
    if result is None:
        return one_line(outcome.seen.refused or outcome.seen.failure or "nothing", REASON_CHARS)
    code = "ended by us" if result.exit_code is None else f"exit {result.exit_code}"
    facts = [code, *(limit.value for limit in result.limits), f"{result.usage.wall_s:.1f} s"]
    said = (result.stdout.head.lstrip() or result.stderr.head.lstrip()).decode("utf-8", "replace")
    first = one_line(said.split("\n", 1)[0])
    return ", ".join(facts) + (f"\n{first}" if first else "")


def write_outcomes(path: Path, outcomes: list[Outcome], policy: Policy, timeout_s: float) -> None:
    """Every outcome as JSON; no command stands in it whole, no output raw."""
    document = {
        "policy": policy.name,
        "policy_sha256": policy.digest(),
        "timeout_s": timeout_s,
        "attacks": [
            {
                "id": each.attack.attack_id,
                "command": one_line(each.attack.command, COMMAND_CHARS),
                "expect": each.attack.expect,
                "verdict": each.verdict.value,
                "reasons": list(each.reasons),
                "happened": happened(each),
                "next_action_s": each.seen.same_workspace.wall_s,
                "neighbour_s": [
                    probe.wall_s for probe in (*each.seen.neighbour_meanwhile, each.seen.neighbour)
                ],
                "close_s": each.seen.close_s,
            }
            for each in outcomes
        ],
    }
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", remedy="name a file that can be written") from error
