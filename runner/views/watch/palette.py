"""Colours with a meaning; each word they colour says the same without them."""

from runner.views.watch.index import ErrorClass
from runner.views.watch.rows import Outcome

DIM = "dim"
BOLD = "bold"
HEADING = "bold cyan"
ALARM = "bold red"
CARE = "yellow"
ACTION = "green"

OUTCOME_STYLES = {
    Outcome.RUNNING: "cyan",
    Outcome.RIGHT: "green",
    Outcome.WRONG: "red",
    Outcome.LIMIT: "yellow",
    Outcome.UNFINISHED: "bold red",
    Outcome.STOPPED: "magenta",
    Outcome.WAITING: "dim",
}
ERROR_STYLES = {
    ErrorClass.RETRY: "yellow",
    ErrorClass.UNFINISHED: "bold red",
    ErrorClass.ENGINE_LOST: "yellow",
    ErrorClass.ENGINE_GIVEN_UP: "bold red",
    ErrorClass.PAUSE: "bold red",
    ErrorClass.DOCTOR: "yellow",
    ErrorClass.STALL: "bold red",
    ErrorClass.RUN: "bold red",
    ErrorClass.DAMAGE: "bold magenta",
}
