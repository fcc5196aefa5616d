"""Every command that a page shows is one that exists, with options and values that it takes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_lines import faults, services
from support.markdown import ROOT, Page, pages

CI = ROOT / ".ci" / "run"


def commands_of(text: str) -> list[str]:
    return [
        f"{number}: {fault}"
        for number, words, whole in Page.read(text).commands()
        for fault in faults(words, whole=whole)
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_understood(page: Path) -> None:
    assert commands_of(page.read_text(encoding="utf-8")) == []


def test_the_pages_show_commands_at_all() -> None:
    shown = [words for page in pages() for _, words, _ in Page.read(page.read_text("utf-8")).commands()]
    assert sum(words[0].endswith("recount") for words in shown) > 40
    assert sum(words[:2] == ["docker", "compose"] for words in shown) > 8


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("recount evaluate demo", "recount has no command evaluate"),
        ("recount eval demo --sample 3", "recount eval has no option --sample"),
        ("recount eval demo --samples", "--samples lacks its value"),
        ("recount verify run", "takes 1 to 1 arguments"),
        ("recount export RUN --format parquet", "none of"),
        ("RECOUNT_MODEL=x .venv/bin/recount sandbox chek", "recount sandbox has no command chek"),
        ("cd recount && docker compose up evl", "no service evl"),
        ("docker compose up --exit-code-from dmo demo", "no service dmo"),
        ("docker compose run --rm eval docter final4", "recount has no command docter"),
        ("docker compose exec demo recount wach", "recount has no command wach"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, fault: str) -> None:
    found = commands_of(f"# Page\n```sh\n{line}   # why\n```\n")
    assert len(found) == 1
    assert fault in found[0]


def test_a_command_in_a_sentence_may_be_half_and_no_more() -> None:
    assert commands_of("`recount verify`, `recount eval --resume RUN`, `recount eval PROFILE …`") == []
    assert commands_of("`recount eval --resum RUN`") == ["1: recount eval has no option --resum"]


def texts_of(module: str) -> Iterator[tuple[int, str]]:
    """The texts of a program; what is put into one when it runs is NAME."""
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.JoinedStr):
            inside.update(ast.walk(node))
            parts = [part.value if isinstance(part, ast.Constant) else "NAME" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


def commands_told(module: str) -> list[str]:
    """Faults of the commands that a program's messages, help and remedies name."""
    return [
        f"{number}: {fault.removeprefix('1: ')}"
        for number, text in texts_of(module)
        for line in text.splitlines()
        for command in (*re.findall(r"`(recount [^`]+)`", line), *re.findall(r"^ *(recount [a-z].*)$", line))
        for fault in commands_of(f"`{re.split(r' {2,}', command)[0]}`")
    ]


def test_every_command_that_a_message_or_a_help_text_names_is_understood() -> None:
    files = [path for package in ("runner", "sandbox") for path in (ROOT / package).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): commands_told(path.read_text(encoding="utf-8")) for path in files}
    assert {path: faults for path, faults in found.items() if faults} == {}
    assert any("recount doctor" in text for path in files for _, text in texts_of(path.read_text("utf-8")))


def test_a_remedy_that_does_not_exist_is_found() -> None:
    assert commands_told('raise E(f"{x} is gone", remedy=f"`recount fech {name}`")') == [
        "1: recount has no command fech"
    ]
    assert commands_told('EPILOG = """Examples:\n\n  recount eval demo --smples 2     two"""') == [
        "1: recount eval has no option --smples"
    ]


def test_what_the_readme_begins_with_is_what_ci_runs() -> None:
    blocks = Page.read((ROOT / "README.md").read_text(encoding="utf-8"))
    shown = [words for _, words, whole in blocks.commands() if whole]
    first = next(words for words in shown if words[:2] == ["docker", "compose"])
    assert first == ["docker", "compose", "up", "demo"]
    assert re.search(r"^docker compose up --exit-code-from demo demo$", CI.read_text("utf-8"), re.MULTILINE)


def test_every_service_that_is_brought_up_is_named_in_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages())
    offered = {name for name in services() if not name.endswith("broker")}
    assert {name for name in offered if not re.search(rf"docker compose [a-z -]*\b{name}\b", text)} == set()
