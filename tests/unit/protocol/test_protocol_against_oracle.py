"""The package against a naive second reading, on texts made of the pieces that readings differ about."""

import json

import protocol_oracle as oracle
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runner.conformance.functions import FUNCTIONS

EXAMPLES = 300

SPACE = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\t",
    "\v",
    "\f",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2028",
    "\u3000",
]
SPACE += ["\u200b", "\ufeff"]  # look like white space and are none
LETTERS = ["a", "7", "x", "ſ", "ı", "İ", "K", "ß", "é", "٣", "７", "½", "Ⅶ", "\ud800", "\x00", "\\", "😀"]
THINK = ["<think>", "</think>", "<THINK>", "</Think>", "<thınK>", "</thİnk>", "<think", "think>", "< think>"]
LABELS = [
    "final answer",
    "Final Answer",
    "answer",
    "ANSWER",
    "anſwer",
    "fınal answer",
    "final  answer",
    "The answer",
]
COLONS = [":", "：", "::", ";", " :", "\n:", "\xa0："]
BOXES = [
    "\\boxed{",
    "\\boxed{}",
    "\\boxed{7}",
    "\x08oxed{",
    "\x08oxed{7}",
    "\\boxed {",
    "\\Boxed{",
    "{",
    "}",
    "{{",
    "}}",
]
NUMBERS = [
    "7",
    "-7",
    "+7",
    "0.5",
    ".5",
    "1/2",
    "1/2/3",
    "1/0",
    "0/0",
    "1,000",
    "1_000",
    "_1",
    "1__0",
    "1e2",
    "1E-9",
]
NUMBERS += [
    "1e-8",
    "1.00000001",
    "1.000000011",
    "NaN",
    "sNaN",
    "-inf",
    "Infinity",
    "1e999999",
    "1e1000000",
    "1e-999999",
]
NUMBERS += [
    "1e9999999999999999999",
    "1e999999/1e-9",
    "1e-999999/1e9",
    "٣",
    "−7",
    "7.",
    "7..",
    "3.14159",
    "0x10",
    "1e",
    "/",
]
JSON = [
    '"name"',
    "'name'",
    '"bash"',
    "'bash'",
    '"BASH"',
    "'baſh'",
    '"command"',
    "'command'",
    "\"Command'",
    '"arguments"',
]
JSON += [
    '"',
    "'",
    '\\"',
    "\\'",
    "\\\\",
    "\\n",
    "\\t",
    "\\u0041",
    "\\ud83d",
    "\\x",
    ":",
    ",",
    "{",
    "}",
    "[",
    "]",
    "null",
]
JSON += [
    "NaN",
    "-Infinity",
    "true",
    "1",
    "-0",
    "1e400",
    "01",
    "[{}]",
    "echo",
    ";",
    "```json",
    "rest",
    "\n",
    "\t",
    " ",
]
ACTIONS = [
    "Action:",
    "ACTION:",
    "actıon:",
    "Actİon:",
    "Action :",
    "Action：",
    "**Action:**",
    "action:\n",
    "Action:{",
]
WHOLE = [
    'Action:\n{"name": "bash", "arguments": {"command": "echo 1"}}',
    "Action: {'name': 'bash', 'arguments': {'command': 'echo \"a\" \\'b\\''}}",
    'Action: {"name": "bash", "arguments": {"command": "echo a\nb"}}',
    'Action: {"name": "bash", "arguments": {"command": "cut ',
    'Action: {"name": "bash", "arguments": {"command": "a\\nb\\u0041',
    'Action: {"name": "", "arguments": {}}',
    'Action: {"name": "bash", "arguments": null}',
    'Action: {"name": "bash"}',
    'Action: {"name": "a", "name": "b", "arguments": {"x": [1, {"y": NaN}]}}',
    "Final answer: \\boxed{7}",
]
ENDS = ["", *SPACE, "}", "} ", "}\n", "}}", "```"]


def joined(*groups: list[str], most: int = 12) -> st.SearchStrategy[str]:
    pieces = st.one_of(*(st.sampled_from(group) for group in groups))
    return st.lists(pieces, max_size=most).map("".join)


ANSWER_TEXTS = st.one_of(
    joined(SPACE, LABELS, COLONS, BOXES, NUMBERS, THINK, LETTERS, ["answer:", "Final answer:\n"]),
    joined(THINK, SPACE, ["a", "b,", "Answer: 7"]),
    joined(BOXES, SPACE, NUMBERS, [",", "."]),
)
ACTION_TEXTS = st.one_of(
    joined(ACTIONS, JSON, SPACE, WHOLE, THINK, most=16),
    st.tuples(joined(ACTIONS, SPACE, most=3), joined(JSON, most=24), st.sampled_from(ENDS)).map(
        lambda parts: f"{parts[0]}Action: {{{parts[1]}{parts[2]}"
    ),
    st.tuples(joined(JSON, most=10), st.sampled_from(ENDS)).map(
        lambda parts: f"Action: {{'name': 'bash', 'command': \"{parts[0]}{parts[1]}"
    ),
    st.tuples(st.sampled_from(WHOLE), joined(JSON, SPACE, THINK, most=4), st.sampled_from(WHOLE)).map(
        "".join
    ),
)
COMMANDS = joined(oracle.BLOCKED.split(" "), [*";&|()`$<>./-=", "KIll", "ſu", "gİo"], SPACE, LETTERS)


def assert_same(function: str, *args: object) -> None:
    ours, theirs = FUNCTIONS[function](*args), getattr(oracle, function)(*args)
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


ANSWER_FUNCTIONS = (
    "strip_think",
    "last_boxed",
    "final_answer_line",
    "explicit_answer",
    "displayed_prediction",
    "normalize_answer",
)


@pytest.mark.parametrize("function", ANSWER_FUNCTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(text=ANSWER_TEXTS)
@example(text="answer: \n \n")
@example(text="answer:\n\n")
@example(text="answer: 7\nanswer:\n\r\n")
@example(text="answer: 7\n\n  answer:\n\nanswer: 8")
@example(text="\x1c\nx\u2028y,\n")
def test_answers_are_read_as_by_the_oracle(function: str, text: str) -> None:
    assert_same(function, text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    answer=st.one_of(joined(NUMBERS, BOXES, SPACE, ["."], most=4), st.sampled_from(NUMBERS)),
    gold=st.one_of(joined(NUMBERS, BOXES, SPACE, ["."], most=4), st.sampled_from(NUMBERS)),
)
def test_scores_are_the_oracle_s(answer: str, gold: str) -> None:
    assert_same("score", f"Final answer: {answer}", gold)
    assert_same("score", f"\\boxed{{{answer}}}", gold)


@pytest.mark.parametrize("function", ["parse_action", "parse_turn"])
@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(text=ACTION_TEXTS)
def test_actions_are_read_as_by_the_oracle(function: str, text: str) -> None:
    assert_same(function, text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(command=COMMANDS)
def test_commands_are_blocked_as_by_the_oracle(command: str) -> None:
    assert_same("is_blocked_command", command)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    value=JSON_VALUES, indent=st.sampled_from([None, 0, 1]), cut=st.integers(0, 60), rest=joined(JSON, most=2)
)
def test_json_is_decoded_as_by_the_standard_decoder(
    value: object, indent: int | None, cut: int, rest: str
) -> None:
    whole = json.dumps({"name": "x", "arguments": {"y": value}}, indent=indent)

    assert_same("parse_action", f"Action: {whole}{rest}")
    assert_same("parse_action", f"Action: {whole[:cut]}{rest}{whole[cut:]}")
