"""The protocol pack is read out of sources by their structure, and nothing of them is run."""

import json
import os
from pathlib import Path

import pytest
from support.artifact_files import LOOP_SOURCE, MESSAGES_SOURCE, PACK_DOCUMENT

from runner.artifacts import load_manifest
from runner.artifacts.manifest import Pack
from runner.artifacts.pack import check_pack, read_sources, render_pack, write_pack
from runner.errors import UserError
from runner.hashing import sha256_file, sha256_text
from runner.protocol.prompt import ProtocolPack

PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "protocol" / "protocol.json"


def read(tmp_path: Path, messages: str = MESSAGES_SOURCE, loop: str = LOOP_SOURCE) -> ProtocolPack:
    (tmp_path / "messages.py").write_text(messages, encoding="utf-8")
    (tmp_path / "loop.py").write_text(loop, encoding="utf-8")
    return read_sources(tmp_path / "messages.py", tmp_path / "loop.py")


def test_every_sentence_is_found(tmp_path: Path) -> None:
    assert json.loads(render_pack(read(tmp_path))) == PACK_DOCUMENT


def test_lines_before_and_between_do_not_matter(tmp_path: Path) -> None:
    messages = "# a comment\n" * 40 + MESSAGES_SOURCE.replace("def run_bash", "\n\nx = 1\n\n\ndef run_bash")
    loop = LOOP_SOURCE.replace("class Actor:", "class Other:\n    pass\n\n\nclass Actor:")

    assert read(tmp_path, messages, loop) == read(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("def math_react_messages", "def messages_of", "system_prompt"),
        ('{"role": "user", "content": user},', "", "user_prompt_template"),
        ("{task.question}", "{task.question!r}", "user_prompt_template"),
        ("{task.question}", "{task.title}", "user_prompt_template"),
        ("{skill_block}", "{extra}", "system_prompt"),
        ("react_observation_text(name, text)", "react_observation_text(name)", "observation_template"),
        ("if is_dangerous_bash_command(command)", "if odd(command)", "blocked_command_observation"),
        ('return "We do not do that."', "return BLOCKED", "blocked_command_observation"),
    ],
)
def test_a_source_of_another_shape_is_refused_and_the_sentence_named(
    tmp_path: Path, before: str, after: str, key: str
) -> None:
    assert before in MESSAGES_SOURCE
    with pytest.raises(UserError, match=rf"messages\.py: `{key}"):
        read(tmp_path, messages=MESSAGES_SOURCE.replace(before, after))


FORM = 'react_observation_text("form", warning))\n                continue\n            name'


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("final_match and not action", "final_match or not action", "answer_before_bash_warning"),
        ("            if not action:", "            if action is None:", "no_action_warning"),
        ("if not command.strip()", "if not command", "empty_command_observation"),
        ('if name == "bash"', 'if name in {"bash"}', "unknown_action_template"),
        ("There is no {name}.", "There is no {action}.", "unknown_action_template"),
        (FORM, FORM.replace("form", "other"), "format_check_name"),
        ('stop=["Halt:", "Stop:"]', "stop=STOPS", "stop"),
        ("def rollout_batch(", "def rollout(", "format_check_name"),
    ],
)
def test_a_loop_of_another_shape_is_refused_and_the_sentence_named(
    tmp_path: Path, before: str, after: str, key: str
) -> None:
    assert before in LOOP_SOURCE
    with pytest.raises(UserError, match=rf"loop\.py: `{key}`"):
        read(tmp_path, loop=LOOP_SOURCE.replace(before, after))


def test_an_absent_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"source .*messages\.py is missing"):
        read_sources(tmp_path / "messages.py", tmp_path / "loop.py")


@pytest.mark.parametrize("content", ["def (", "x = '\x00'", "(" * 5000])
def test_what_is_no_python_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"messages\.py is no Python source"):
        read(tmp_path, messages=content)


def test_prompt_and_pack_are_held_against_their_hashes(tmp_path: Path) -> None:
    pack = read(tmp_path)
    right = Pack(
        place="pack.json",
        sha256=sha256_text(render_pack(pack)),
        system_prompt_sha256=sha256_text(pack.system_prompt),
        user_prompt_template_sha256=sha256_text(pack.user_prompt_template),
    )

    assert check_pack(pack, right) == ()
    wrong = right.model_copy(update={"system_prompt_sha256": "0" * 64})
    (difference,) = check_pack(pack, wrong)
    assert difference.splitlines() == [
        "the protocol's system prompt is another",
        f"  expected SHA-256 {'0' * 64}",
        f"  found    SHA-256 {right.system_prompt_sha256}",
    ]


def test_the_file_is_the_pack_in_one_form_that_reads_back(tmp_path: Path) -> None:
    pack = read(tmp_path)
    write_pack(pack, tmp_path / "deeper" / "pack.json")

    assert sha256_file(tmp_path / "deeper" / "pack.json") == sha256_text(render_pack(pack))
    assert ProtocolPack.from_mapping(json.loads(render_pack(pack)), "here") == pack


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published text is not beside the checkout")
def test_the_pinned_hashes_are_those_of_the_published_sentences() -> None:
    document = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    pack = ProtocolPack.from_mapping(document, str(PUBLISHED))
    manifest = load_manifest("esopt-math-react")
    sources = {one.path: one.sha256 for one in manifest.files if one.path in document["source"]["files"]}

    assert manifest.pack is not None
    assert check_pack(pack, manifest.pack) == ()
    assert manifest.github.commit == document["source"]["commit"]
    assert sources == document["source"]["files"]


@pytest.mark.skipif(
    "RECOUNT_TEST_SOURCES" not in os.environ,
    reason="RECOUNT_TEST_SOURCES names no sources",
)
def test_the_published_sources_give_the_pinned_pack() -> None:
    manifest = load_manifest("esopt-math-react")
    root = Path(os.environ["RECOUNT_TEST_SOURCES"])
    messages, loop = (one for one in manifest.files if one.group.value == "protocol")

    assert manifest.pack is not None
    assert check_pack(read_sources(root / messages.path, root / loop.path), manifest.pack) == ()
