"""What `recount` alone shows: where to begin, and what to do with the newest run."""

from pathlib import Path

from runner import __version__
from runner.clean import clean_text
from runner.journal import JOURNAL_NAME, is_being_written
from runner.views.watch.find import newest_runs

_FIRST = f"""Recount {__version__} reproduces a published agentic score.

Begin:
  recount eval demo            a whole run: real sandboxes, a scripted model, no GPU; half a minute
  recount doctor interval25    what this machine lacks for the report's evaluation, each with its remedy
  recount eval interval25      the evaluation: fetch, verify, serve, solve, judge (needs NVIDIA GPUs)
  recount eval interval25 --engine openai --model NAME --base-url http://HOST:8000/v1
                               the same with a model that is served elsewhere
  recount profiles             what the profiles are, side by side"""
_LAST = """All commands: recount --help. Examples of one: recount COMMAND --help."""


def start_lines(results_dir: Path) -> list[str]:
    """Return what to show somebody who asked for nothing in particular."""
    return [*_FIRST.splitlines(), "", *_of_the_newest(results_dir), _LAST]


def _of_the_newest(results_dir: Path) -> list[str]:
    runs = newest_runs(results_dir)
    if not runs:
        return []
    run_dir = runs[0]
    # As it would have to be typed, unless its name is of another kind than ours.
    shown = clean_text(str(run_dir), keep_lines=False)
    if is_being_written(run_dir / JOURNAL_NAME):
        return ["A run is at work:", f"  recount watch {shown}", ""]
    return [
        "The newest run:",
        f"  recount watch {shown}",
        f"  recount report {shown}",
        f"  recount eval --resume {shown}    (if it stopped before its end)",
        "",
    ]
