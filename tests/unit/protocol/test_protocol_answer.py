"""Where an answer stands in a completion, and what of it is compared."""

import pytest

from runner.protocol.answer import (
    displayed_prediction,
    explicit_answer,
    final_answer_line,
    last_boxed,
    normalize_answer,
    strip_think,
)


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("<think>a</think> b <THINK>c\nd</Think>", "b"),
        ("a <think>b</think> c\n<think>d</think>\te", "a  c\n\te"),
        ("<think>a<think>b</think>c</think>", "c</think>"),
        ("</think>a<think>b", "</think>a<think>b"),
        ("<thınK>a</thİnk>b", "b"),
        ("\x1c\u3000a\u200b", "a\u200b"),
    ],
)
def test_thinking_is_stripped_in_any_case_and_only_in_pairs(text: str, visible: str) -> None:
    assert strip_think(text) == visible


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1} \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} \boxed{2", None),
        ("\x08oxed{1}", "1"),
        ("\\boxed{1} \x08oxed{2}", "1"),
        ("\\boxed{1 \x08oxed{2}", None),
        (r"\boxed {1}", None),
        (r"\boxed{}", ""),
    ],
)
def test_the_last_box_reaches_to_its_balancing_brace(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final answer: 1\nANSWER：2\n", "2"),
        ("Answer\n\n:\n\n 7 \nmore", "7"),
        ("answer:\nanswer: 7", "answer: 7"),
        (r"answer: so \boxed{1}, \boxed{2}.", "2"),
        (r"answer: \boxed{1", r"\boxed{1"),
        (r"answer: \boxed{}", ""),
        ("my answer: 7", None),
        ("final  answer: 7", None),
        ("x\r answer: 7", None),
        ("x\n\r answer: 7", "7"),
        ("answer: 7\u2028 8\rb", "7\u2028 8\rb"),
        ("anſwer: 7", "7"),
        ("answer: 7\nanswer:\n\n", "7"),
        ("answer: 7\nanswer: \n", ""),
    ],
)
def test_the_last_final_answer_line_wins(text: str, answer: str | None) -> None:
    assert final_answer_line(text) == answer


def test_only_a_final_answer_line_or_a_box_outside_thinking_is_explicit() -> None:
    assert explicit_answer(r"<think>Answer: 1 \boxed{2}</think> it is 3") is None
    assert explicit_answer(r"\boxed{2} it is 3") == "2"
    assert explicit_answer("\\boxed{2}\nAnswer: 3") == "3"
    assert explicit_answer("\\boxed{2}\nAnswer: \\boxed{}") == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"\boxed{x} and 3", "x"),
        ("1,234 then -5.50/7", "-5.50/7"),
        ("1,234", "1234"),
        ("-1/-2", "-2"),
        ("٣ or ７", "７"),
        ("none\n\u2028 here, either ", "here, either"),
        (" ", ""),
    ],
)
def test_the_displayed_prediction_falls_back_on_a_number_then_on_the_last_line(text: str, shown: str) -> None:
    assert displayed_prediction(text) == shown


@pytest.mark.parametrize(
    ("answer", "normal"),
    [
        (r" \boxed{7}", "7"),
        (r"\boxed{\boxed{7}}", r"\boxed{7}"),
        (r"\boxed{}", r"\boxed{}"),
        ("{ { 7 } }", "7"),
        ("{a}{b}", "a}{b"),
        ("{", "{"),
        ("1,234\u2009567", "1234567"),
        ("..5.", "5"),
        ("İX", "i̇x"),
    ],
)
def test_answers_are_compared_in_their_normal_form(answer: str, normal: str) -> None:
    assert normalize_answer(answer) == normal
