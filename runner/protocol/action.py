"""The action a completion asks for, and which commands are never run."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from runner.protocol.answer import final_answer_line, strip_think
from runner.protocol.decoding import TurnParseError, decode_first_value, recursion_error

__all__ = [
    "Action",
    "ParsedTurn",
    "TurnParseError",
    "bash_command",
    "is_blocked_command",
    "parse_action",
    "parse_turn",
]

BASH = "bash"
"""Name of the one action there is."""

_LABEL_AND_BRACE = re.compile(r"action:\s*(?=\{)", re.IGNORECASE)
_NAME_IS_BASH = re.compile(r"""["']name["']\s*:\s*["']bash["']""", re.IGNORECASE)
_COMMAND_QUOTE = re.compile(r"""["']command["']\s*:\s*(["'])""", re.IGNORECASE)
_ESCAPE_OR_QUOTE = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in "\"'"}
_ESCAPES = (("\\\\", "\\"), ('\\"', '"'), ("\\'", "'"), ("\\n", "\n"), ("\\t", "\t"))
"""The escapes of the last resort, in the order in which each is replaced throughout.

One after another, not in one pass: `\\\\n` becomes `\\n` and then a line end, as in the original.
"""

_BLOCKED_PROGRAMS = (
    "sudo",
    "su",
    "pkexec",
    "gksu",
    "gksudo",
    "kdesu",
    "kill",
    "pkill",
    "killall",
    "reboot",
    "shutdown",
    "halt",
    "poweroff",
    "screen",
    "tmux",
    "ray",
    "xdg-open",
    "gio",
    "sensible-browser",
    "x-www-browser",
    "firefox",
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
    "brave",
    "brave-browser",
    "opera",
    "epiphany",
    "zenity",
    "kdialog",
    "xmessage",
    "notify-send",
)
_BLOCKED = re.compile(
    r"(?:\A|[;&|()`$<>\s])(?:" + "|".join(map(re.escape, _BLOCKED_PROGRAMS)) + r")(?:\s|\Z)", re.IGNORECASE
)


@dataclass(frozen=True)
class Action:
    """What a completion asks for. `arguments` is whatever JSON object stood there."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def as_mapping(self) -> dict[str, Any]:
        """Return the form that results files hold."""
        return {"name": self.name, "arguments": self.arguments}


@dataclass(frozen=True)
class ParsedTurn:
    """What a completion, thinking aside, says: an answer, an action, both or neither."""

    final_answer: str | None
    action: Action | None


def parse_turn(text: str) -> ParsedTurn:
    """Read a completion: strip its thinking, then find its final answer line and its action.

    Raises `TurnParseError` as `parse_action` does.
    """
    visible = strip_think(text)
    return ParsedTurn(final_answer_line(visible), parse_action(visible))


def parse_action(text: str) -> Action | None:
    """Return the action in `text`, or None.

    Models cut JSON short, quote with ', and break lines inside strings; the published scores include what
    the original's relaxed second reading made of that, so it is reproduced here rather than improved.
    JSON that decodes but has the wrong shape (no string `name`, `arguments` not an object) is None
    without a second reading. Absent `arguments` are empty ones.

    Raises `TurnParseError` where the original's decoder raised something else than a decoding error.
    """
    block = _action_block(text)
    if block is None:
        return None
    try:
        decoded = decode_first_value(block)
    except json.JSONDecodeError:
        return _relaxed_action(block)
    if not isinstance(decoded, dict):
        return None
    name, arguments = decoded.get("name"), decoded.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return Action(name, arguments)


def bash_command(action: Action) -> str:
    """Return the `command` argument as a string, whatever it is; empty if there is none.

    Raises `TurnParseError` for a value nested so deeply that this stack has no room to print it, which
    decoding allows only for callers that stand deep themselves.
    """
    try:
        return str(action.arguments.get("command", ""))
    except RecursionError as error:
        raise recursion_error("getting the repr of an object") from error


def is_blocked_command(command: str) -> bool:
    """Say whether `command` names a program that is never run, as a word by the original's reading.

    That reading is no shell's: it sees the name in any case at the start or after white space or one of
    ``; & | ( ) ` $ < >``, and only where white space or the end follows. `/bin/kill` and `kill;` pass.
    """
    return _BLOCKED.search(command) is not None


def _action_block(text: str) -> str | None:
    """Return the block of the first `Action:` that a brace follows directly, or None.

    The rule is three searches, each over the whole text: from such a brace to a closing brace that ends
    the text, else to the last closing brace, else to the end. They always agree on the opening brace (if
    no closing one is behind the first, none is behind a later one) and the first is a case of the
    second, so the last closing brace decides alone. White space at the block's end never counts.
    """
    label = _LABEL_AND_BRACE.search(text)
    if label is None:
        return None
    start = label.end()
    last_brace = text.rfind("}", start)
    return text[start : last_brace + 1] if last_brace >= 0 else text[start:].rstrip()


def _relaxed_action(block: str) -> Action | None:
    """Read a block that is no JSON: a `name` of `bash` anywhere in it and the first quoted `command`.

    The two quotes around a key or value need not match. The command ends at the next quote of the kind
    it began with that no backslash escapes, or with the block.
    """
    if _NAME_IS_BASH.search(block) is None:
        return None
    opening = _COMMAND_QUOTE.search(block)
    if opening is None:
        return None
    quote, start, end = opening.group(1), opening.end(), len(block)
    for found in _ESCAPE_OR_QUOTE[quote].finditer(block, start):
        if found.group() == quote:
            end = found.start()
            break
    command = _relaxed_string(block[start:end]).strip()
    return Action(BASH, {"command": command}) if command else None


def _relaxed_string(raw: str) -> str:
    """Decode a quoted string: as JSON with its double quotes escaped, else as JSON, else by hand."""
    decoded = _json_string(raw.replace('"', '\\"'))
    if decoded is None:
        decoded = _json_string(raw)
    if decoded is not None:
        return decoded
    for escape, meaning in _ESCAPES:
        raw = raw.replace(escape, meaning)
    return raw


def _json_string(inner: str) -> str | None:
    try:
        return str(json.loads(f'"{inner}"'))
    except json.JSONDecodeError:
        return None
