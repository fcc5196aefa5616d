"""The messages that docs/troubleshooting.md explains are messages that the programs give."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
OURS = re.compile(r"^\| `([^`]+)`", re.MULTILINE)
LEAST_CHARS = 8


def messages() -> list[str]:
    """Every message of ours that begins a row; `…` stands for what changes."""
    return OURS.findall(PAGE)


def texts() -> str:
    """Every text that stands in our code, with a mark for what is put into it."""
    found: list[str] = []
    for package in ("runner", "sandbox"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                    found.append("".join(str(part) for part in parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return "\n".join(found)


TEXTS = texts()


@pytest.mark.parametrize("message", messages())
def test_a_message_that_is_explained_is_one_of_ours(message: str) -> None:
    parts = [part.strip() for part in message.split("…")]
    said = [part for part in parts if len(part) >= LEAST_CHARS]

    assert said, "nothing of it is fixed"
    assert [part for part in said if part not in TEXTS] == []


def test_the_page_explains_messages_at_all() -> None:
    assert len(messages()) >= 40
