"""What the keys do and what the words mean."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from typing_extensions import override

from runner.views.watch.document import Line
from runner.views.watch.lines_scroll import LinesScroll
from runner.views.watch.palette import DIM, HEADING

_KEYS = {
    "table": (
        ("up/down j/k", "move; page up/down, space, b, home g, end G"),
        ("enter", "open the trajectory, turn by turn"),
        ("s S", "sort by the next, previous column; r: the other way round"),
        ("/", "find a text in ids, questions, answers and commands"),
        ("d D", "only the next, previous data set"),
        ("o O", "only the next, previous state or outcome"),
        ("t T", "only the next, previous termination"),
        ("c", "clear all filters"),
        ("1 2 3", "trajectories, engines, errors"),
    ),
    "a trajectory": (
        ("a", "all of long texts, or cut"),
        ("n p", "next, previous trajectory of the table"),
        ("] [ tab", "next, previous turn"),
        ("esc", "back to the table"),
    ),
    "everywhere": (
        ("?", "this help"),
        ("q ctrl-c", "end the viewer; the run goes on"),
    ),
}
_WORDS = (
    ("right", "full score, whatever ended it"),
    ("wrong", "it answered, without the full score"),
    ("limit", "turns, context or a refused prompt ended it; scored as the report scores it"),
    ("unfinished", "our own side kept failing: no score"),
    ("stopped", "the run ended before it did: no score"),
    ("mean [ ]", "95 % interval for fresh samples of the same problems"),
    ("mean ~[ ]", "some problem has one sample only: interval of independent trajectories, wider"),
    ("silent", "no event for a minute: slow, or killed; the viewer cannot tell"),
)
_KEY_CELLS = 13


def help_lines() -> list[Line]:
    """Return the help's text."""
    lines = [Line("The viewer reads the run's journal and touches nothing.", DIM), Line("")]
    for where, keys in _KEYS.items():
        lines.append(Line(where, HEADING))
        lines += [Line(f"{key:<{_KEY_CELLS}}{what}", indent=2) for key, what in keys]
    lines.append(Line("words", HEADING))
    return lines + [Line(f"{word:<{_KEY_CELLS}}{what}", indent=2) for word, what in _WORDS]


class HelpScreen(ModalScreen[None]):
    """Over whatever was open; any of the usual keys closes it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen LinesScroll { width: 90%; max-width: 96; height: 90%; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,enter", "dismiss", "close"),
        Binding("q", "app.quit", "quit"),
    ]

    @override
    def compose(self) -> ComposeResult:
        yield LinesScroll(widget_id="help")

    def on_mount(self) -> None:
        """Fill it."""
        self.query_one(LinesScroll).show(help_lines())
