"""A second, naive reading of the protocol's rules: one regular expression a rule, quadratic and all.

It shares no code with the package. What the two read differently is a fault in one of them.
"""

import json
import re
from decimal import Decimal, DecimalException
from typing import Any


def strip_think(text: str) -> str:
    return re.sub(r"(?is)<think>.*?</think>", "", text).strip()


def last_boxed(text: str) -> str | None:
    whole, halved = text.split("\\boxed{"), text.split("\x08oxed{")
    pieces = whole if len(whole) > 1 else halved
    if len(pieces) == 1:
        return None
    inside = pieces[-1]
    for end in range(len(inside)):
        if inside[end] == "}" and inside[: end + 1].count("}") == inside[: end + 1].count("{") + 1:
            return inside[:end].strip()
    return None


def final_answer_line(text: str) -> str | None:
    found = re.findall(r"(?im)^\s*(?:final answer|answer)\s*[:：]\s*(.+)$", text)
    if not found:
        return None
    box = last_boxed(found[-1])
    return found[-1].strip() if box is None else box


def explicit_answer(text: str) -> str | None:
    text = strip_think(text)
    line = final_answer_line(text)
    return line if line is not None else last_boxed(text)


def displayed_prediction(text: str) -> str:
    explicit = explicit_answer(text)
    if explicit is not None:
        return explicit
    text = strip_think(text)
    numbers = re.findall(r"[-+]?\d+(?:\.\d+)?(?:/\d+)?", text.replace(",", ""))
    return [*text.splitlines(), *numbers][-1].strip() if text else ""


def normalize_answer(text: str) -> str:
    text = re.sub(r"\\boxed\{([^{}]+)\}", lambda found: found[1], text.strip())
    while len(text) > 1 and (text[0], text[-1]) == ("{", "}"):
        text = text[1:-1].strip()
    return re.sub(r"[\s,]", "", text).strip(".").lower()


def decimal(text: str) -> Decimal | None:
    left, slash, right = normalize_answer(text).partition("/")
    try:
        value = Decimal(left) / Decimal(right) if slash else Decimal(left)
    except DecimalException:
        return None
    return value if value.is_finite() else None


def score(text: str, gold: str) -> list[Any]:
    answer = explicit_answer(text)
    if answer is None:
        return [0.0, "missing_final_answer"]
    answer, gold = normalize_answer(answer), normalize_answer(gold)
    left, right = decimal(answer), decimal(gold)
    near = False
    if left is not None and right is not None:
        try:
            near = abs(left - right) <= Decimal("0.00000001")
        except DecimalException:
            near = False
    return [1.0 if answer == gold or near else 0.0, "exact_fallback"]


def action_block(text: str) -> str | None:
    for search in (r"(\{.*?\})\s*\Z", r"(\{.*\})", r"(\{.*)\Z"):
        if found := re.search(r"(?is)action:\s*" + search, text):
            return found[1].strip()
    return None


def parse_action(text: str) -> dict[str, Any] | None:
    block = action_block(text)
    if block is None:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(block)
    except json.JSONDecodeError:
        return relaxed(block)
    value = {"arguments": {}, **value}
    if type(value.get("name")) is str and type(value["arguments"]) is dict:
        return {"name": value["name"], "arguments": value["arguments"]}
    return None


def relaxed(block: str) -> dict[str, Any] | None:
    opening = re.search(r"""(?i)["']command["']\s*:\s*(["'])""", block)
    if opening is None or not re.search(r"""(?i)["']name["']\s*:\s*["']bash["']""", block):
        return None
    raw, escaped = "", False
    for character in block[opening.end() :]:
        if character == opening[1] and not escaped:
            break
        escaped = character == "\\" and not escaped
        raw += character
    command = string(raw).strip()
    return {"name": "bash", "arguments": {"command": command}} if command else None


def string(raw: str) -> str:
    for quoted in ('"' + '\\"'.join(raw.split('"')) + '"', '"' + raw + '"'):
        try:
            return json.loads(quoted)
        except json.JSONDecodeError:
            pass
    raw = raw.replace(r"\\", "\\").replace(r"\"", '"').replace(r"\'", "'")
    return raw.replace(r"\n", "\n").replace(r"\t", "\t")


def parse_turn(text: str) -> dict[str, Any]:
    text = strip_think(text)
    return {"final_answer": final_answer_line(text), "action": parse_action(text)}


BLOCKED = (
    "sudo su pkexec gksu gksudo kdesu kill pkill killall reboot shutdown halt poweroff screen tmux ray "
    "xdg-open gio sensible-browser x-www-browser firefox google-chrome google-chrome-stable chromium "
    "chromium-browser brave brave-browser opera epiphany zenity kdialog xmessage notify-send"
)


def is_blocked_command(command: str) -> bool:
    before = r"(?:(?<=[;&|()`$<>\s])|\A)"
    return any(
        re.search(rf"(?i){before}{re.escape(program)}(?!\S)", command) is not None
        for program in BLOCKED.split(" ")
    )
