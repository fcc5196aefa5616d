"""Which action a completion asks for, and which commands are never run."""

import sys
from typing import Any

import pytest

from runner.protocol.action import (
    Action,
    ParsedTurn,
    TurnParseError,
    bash_command,
    is_blocked_command,
    parse_action,
    parse_turn,
)
from runner.protocol.decoding import MAX_DEPTH, MAX_INT_DIGITS


def bash(command: str) -> Action:
    return Action("bash", {"command": command})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('Action: {"name": "bash", "arguments": {"command": "a"}} rest }', bash("a")),
        ('Action: none\naction:\n\n{"name": "x"}', Action("x", {})),
        ('Action:\n```json\n{"name": "x"}\n```', None),
        ('Action: {"name": "a", "name": "b"}', Action("b", {})),
        ('Action: {"name": " "}', Action(" ", {})),
        ('Action: {"name": 5}', None),
        ('Action: {\xa0"name": "x"}', None),
        ('Action: {"name": "bash", "arguments": null}', None),
        ('Action: {"name": "bash", "arguments": [], "command": "a"}', None),
    ],
)
def test_json_behind_the_label_is_the_action(text: str, action: Action | None) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("Action: {'name': 'bash', 'arguments': {'command': 'echo \"5\"'}}", 'echo "5"'),
        ('Action: {\'NAME" :\n"BASH\', "command\' : "a\'b"}', "a'b"),
        ('Action: {"name": "bash", "command": "a\nb"}}', "a\nb"),
        ('Action: {"name": "bash", "command": "cut \\"here', 'cut "here'),
        ('Action: {"name": "bash", "command": "a\\u0041\\n" \\', "aA"),
        ('Action: {"name": "bash", "command": "\\u0041 \n', "A"),
        ('Action: {"name": "bash", "command": "a\\\\nb\\x', "a\nb\\x"),
        ('Action: {"name": "bash", "command": "one", "command": "two"', "one"),
        ('Action: {"name": "bash", "command": \'a } b', "a }"),
    ],
)
def test_what_is_no_json_gets_the_relaxed_reading(text: str, command: str) -> None:
    assert parse_action(text) == bash(command)


@pytest.mark.parametrize(
    "text",
    [
        "Action: {'name': 'python', 'command': 'a'}",
        "Action: {'name': 'bash', 'command': ' '}",
        "Action: {'name': 'bash', 'command': 5}",
        "Action: {'name': 'bash'}",
        "Action",
    ],
)
def test_the_relaxed_reading_needs_bash_and_a_quoted_command(text: str) -> None:
    assert parse_action(text) is None


def test_a_turn_is_read_without_its_thinking() -> None:
    text = '<think>Action: {"name": "x"}\nAnswer: 1</think>Answer: 2\nAction: {"name": "y"}'

    assert parse_turn(text) == ParsedTurn("2", Action("y", {}))


def nested(levels: int, opening: str = "[", closing: str = "]") -> str:
    return (
        'Action: {"name": "bash", "arguments": {"command": '
        + opening * (levels - 2)
        + closing * (levels - 2)
        + "}}"
    )


def test_nesting_to_the_limit_is_decoded_whatever_the_stack_of_the_caller() -> None:
    def deep(frames: int) -> Action | None:
        return deep(frames - 1) if frames else parse_action(nested(MAX_DEPTH))

    limit = sys.getrecursionlimit()
    assert isinstance(deep(limit // 2), Action)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (nested(MAX_DEPTH + 1), "array"),
        (nested(MAX_DEPTH + 1, '{"a":', "}"), "object"),
        ("Action: " + '{"a":' * 200_000, "object"),
    ],
)
def test_nesting_beyond_the_limit_is_the_original_s_error(text: str, kind: str) -> None:
    with pytest.raises(TurnParseError) as raised:
        parse_turn(text)

    assert raised.value.original == (
        f"RecursionError: maximum recursion depth exceeded while decoding a JSON {kind} from a unicode string"
    )


def test_text_that_is_no_json_before_it_nests_too_deep_gets_the_relaxed_reading() -> None:
    assert parse_action("Action: {'name': 'bash', 'command': 'a', " + "[" * 5_000) == bash("a")


def test_an_integer_beyond_python_s_limit_is_the_original_s_error() -> None:
    digits = "9" * MAX_INT_DIGITS

    assert parse_action(f'Action: {{"name": "x", "arguments": {{"a": -{digits}}}}}') == Action(
        "x", {"a": -int(digits)}
    )
    with pytest.raises(TurnParseError) as raised:
        parse_action(f'Action: {{"name": "x", "arguments": {{"a": 1{digits}}}}}')

    assert raised.value.original == (
        "ValueError: Exceeds the limit (4300) for integer string conversion: value has 4301 digits; "
        "use sys.set_int_max_str_digits() to increase the limit"
    )


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({}, ""),
        ({"command": None}, "None"),
        ({"command": ["a", 1.0]}, "['a', 1.0]"),
        ({"command": " a "}, " a "),
    ],
)
def test_a_command_is_whatever_str_makes_of_it(arguments: dict[str, Any], command: str) -> None:
    assert bash_command(Action("bash", arguments)) == command


def test_a_command_too_deep_to_print_is_the_original_s_error() -> None:
    command: list[Any] = []
    for _ in range(200_000):
        command = [command]

    with pytest.raises(TurnParseError, match="while getting the repr of an object"):
        bash_command(Action("bash", {"command": command}))

    while command:  # taken apart level by level: an interpreter may not free it in one go
        command = command.pop()


@pytest.mark.parametrize(
    "command", ["sudo ls", "KIll 1", "a;su", "$(ray\t)", "echo `halt\n`", "x <screen", "ſu"]
)
def test_a_blocked_program_is_found_as_a_word(command: str) -> None:
    assert is_blocked_command(command)


@pytest.mark.parametrize("command", ["", "/bin/kill 1", "kill;", "'su'", "brave-browsers", "sum 1", "a=su)"])
def test_a_blocked_program_s_name_within_other_text_passes(command: str) -> None:
    assert not is_blocked_command(command)
