"""Which display a run gets: what was asked for, else what its terminal can show."""

from collections.abc import Mapping
from enum import Enum

UI_VARIABLE = "EVAL_UI"
"""Asks for a display where no option does: a container has it where a command line has --ui."""

_NO = frozenset({"", "0", "false", "no"})
"""What `CI` may be where there is none: Compose hands an unset variable on as an empty one."""
_NO_MOVEMENT = frozenset({"", "dumb", "unknown"})
"""Values of `TERM` that say the cursor cannot be moved; empty is also what a missing one becomes."""


class Ui(str, Enum):
    """How a run shows itself."""

    AUTO = "auto"
    FRAMES = "frames"
    LINES = "lines"
    OFF = "off"
    """Nothing until the summary."""


def choose_ui(asked: Ui, environment: Mapping[str, str], *, is_terminal: bool) -> Ui:
    """Return the display to use, never `AUTO`.

    A log that a person reads later is spoiled by frames, and a container cannot tell `up` from `up > file`:
    so whatever speaks against a person who watches means lines.
    """
    if asked is not Ui.AUTO:
        return asked
    if not is_terminal or environment.get("TERM", "") in _NO_MOVEMENT:
        return Ui.LINES
    return Ui.LINES if environment.get("CI", "").lower() not in _NO else Ui.FRAMES


def wants_color(environment: Mapping[str, str]) -> bool:
    """Tell whether colours may be used: `NO_COLOR`, if it says anything, forbids them (no-color.org)."""
    return not environment.get("NO_COLOR")
