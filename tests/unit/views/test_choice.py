"""Who gets frames, and who lines."""

import pytest

from runner.views.choice import Ui, choose_ui, wants_color

XTERM = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        (XTERM, True, Ui.FRAMES),
        (XTERM, False, Ui.LINES),
        ({}, True, Ui.LINES),
        ({"TERM": ""}, True, Ui.LINES),
        ({"TERM": "dumb"}, True, Ui.LINES),
        (XTERM | {"CI": "true"}, True, Ui.LINES),
        (XTERM | {"CI": "1"}, True, Ui.LINES),
        (XTERM | {"CI": ""}, True, Ui.FRAMES),
        (XTERM | {"CI": "false"}, True, Ui.FRAMES),
    ],
)
def test_frames_are_for_somebody_who_watches_a_terminal(
    environment: dict[str, str], is_terminal: bool, expected: Ui
) -> None:
    assert choose_ui(Ui.AUTO, environment, is_terminal=is_terminal) is expected


@pytest.mark.parametrize("asked", [Ui.FRAMES, Ui.LINES, Ui.OFF])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_asked_for_is_given(asked: Ui, is_terminal: bool) -> None:
    assert choose_ui(asked, {"CI": "true"}, is_terminal=is_terminal) is asked


@pytest.mark.parametrize(
    ("environment", "wanted"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)]
)
def test_no_color_forbids_colours(environment: dict[str, str], wanted: bool) -> None:
    assert wants_color(environment) is wanted
