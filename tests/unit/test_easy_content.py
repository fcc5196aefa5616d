"""The easy problems and their prompt are right: what they say is computed here once more."""

import math
import re
import subprocess
import sys

import pytest

from runner.jsonl import read_json_lines
from runner.plan import make_plan
from runner.protocol.action import bash_command, parse_turn
from runner.protocol.prompt import initial_messages, observation_message
from runner.resources import bundled_dataset

ANSWERS = {
    "easy_001_sum-of-squares": 60 * 61 * 121 // 6,
    "easy_002_primes": len(set(range(2, 200)) - {a * b for a in range(2, 100) for b in range(2, 100)}),
    "easy_003_multiples": len(range(7, 501, 7)),
    "easy_004_digit-sum": sum(int(digit) for digit in str(1 << 100)),
    "easy_005_remainder": pow(17, 23, 101),
    "easy_006_factorial": 50 // 5 + 50 // 25,
}


def test_every_answer_is_what_another_way_computes() -> None:
    rows = [row for _, row in read_json_lines(bundled_dataset("easy.jsonl"))]

    assert {row["id"]: row["answer"] for row in rows} == {name: str(value) for name, value in ANSWERS.items()}
    assert str(math.factorial(50)).endswith("0" * ANSWERS["easy_006_factorial"])


def test_the_worked_example_is_readable_and_computes_what_it_says() -> None:
    pack = make_plan("cpu").pack
    example = pack.system_prompt[pack.system_prompt.index("An example.") :]
    command = re.search(r"Action:\n\{.*\}", example)
    assert command is not None
    action = parse_turn(command.group()).action
    assert action is not None
    done = subprocess.run(
        ["bash", "-c", bash_command(action).replace("python3", sys.executable)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert parse_turn(example).final_answer == done.stdout.strip()
    # The example's observation is what the model will see, and a model that writes its own is stopped there.
    shown = observation_message(pack, "bash", f"{done.stdout}\n[exit_code] 0")["content"]
    first_lines = "\n".join(shown.splitlines()[:4])
    assert first_lines in example
    assert any(first_lines.startswith(stop) for stop in pack.stop)


@pytest.mark.parametrize("question", ["How many {text}?"])
def test_a_question_is_asked_as_it_is(question: str) -> None:
    _, user = initial_messages(make_plan("cpu").pack, question)

    assert user["content"] == f"Question: {question}"
