"""Every reader of model text ends soon on a megabyte made to make it slow.

Nothing is measured: a reader that takes quadratic time needs many minutes here and runs into the limit.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from runner.protocol.action import TurnParseError, is_blocked_command, parse_action, parse_turn
from runner.protocol.answer import displayed_prediction, explicit_answer, final_answer_line, normalize_answer
from runner.protocol.observation import exec_error_of, truncate_observation, universal_newlines
from runner.protocol.score import answer_status, score_exact

MEGABYTE = 1_000_000

READERS: list[Callable[[str], object]] = [
    final_answer_line,
    explicit_answer,
    displayed_prediction,
    normalize_answer,
    answer_status,
    parse_action,
    parse_turn,
    is_blocked_command,
    exec_error_of,
    universal_newlines,
    lambda text: score_exact(f"Answer: {text}", "1/3"),
    lambda text: score_exact("Answer: 1/3", text),
    lambda text: truncate_observation(text, 6_000),
]

PIECES = {
    "unclosed thinking": "<think>",
    "ends of thinking": "</think>",
    "labels of actions": "action:",
    "labels of actions and spaces": "action:   ",
    "labels of actions and braces": "action: {",
    "blank lines": "\n",
    "spaces": " ",
    "labels of answers": "answer:\n",
    "labels of answers without a colon": "answer\n\n\n",
    "first words of a label": "final \n",
    "opening braces": "{",
    "closing braces": "}",
    "unclosed boxes": "\\boxed{",
    "unclosed boxes with text": "\\boxed{7 ",
    "boxes": "\\boxed{7}",
    "halved boxes": "\x08oxed{",
    "arrays": "[",
    "digits": "7",
    "fractions": "7/",
    "signs": "+-",
    "underscores": "7_",
    "points": "7.",
    "commas": ",",
    "full stops": ".",
    "backslashes": "\\",
    "double quotes": '"',
    "names": "'name' : ",
    "commands": "'command'  :  ",
    "programs": ";google-chrome",
    "carriage returns": "\r",
    "surrogates": "\ud800",
}
FRAMES = {
    "bare": "{}",
    "in braces": "{{{{ {} }}}}",
    "in an action": 'Action: {{"name": "bash", "arguments": {{"command": [{}]}}}}',
    "in a command": 'Action: {{"name": "bash", "arguments": {{"command": "{}"}}}}',
    "in a relaxed command": "Action: {{'name': 'bash', 'arguments': {{'command': '{}",
    "before an action": "{}\nAction: {{'name': 'bash', 'command': 'a'}}",
    "of nested objects": 'Action: {{"a": {{"b": {}}}',
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
def test_a_megabyte_is_read_in_linear_time(piece: str, frame: str) -> None:
    text = frame.format(piece * (MEGABYTE // len(piece)))

    for reader in READERS:
        with suppress(TurnParseError):  # an outcome like another
            reader(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("peeled", ["{" * MEGABYTE + "}" * MEGABYTE, "{ " * MEGABYTE + " }" * MEGABYTE])
def test_a_megabyte_of_outer_braces_is_peeled_in_linear_time(peeled: str) -> None:
    assert normalize_answer(peeled) == ""
