"""What a shell completes behind a command: names of profiles, policies and runs.

A shell asks while somebody waits, so nothing here reads more than the names in one directory. Paths are the
shell's own to complete, where none of these names begins as what was typed.
"""

import os
from pathlib import Path

from runner.resources import bundled_profiles
from runner.views.watch.find import newest_runs
from sandbox.policy import bundled_policies

RESULTS_VARIABLE = "RECOUNT_RESULTS"
_MOST_RUNS = 20


def complete_profile(incomplete: str) -> list[str]:
    """Return the bundled profiles that begin so, else files."""
    return _beginning(bundled_profiles(), incomplete)


def complete_policy(incomplete: str) -> list[str]:
    """Return the bundled policies that begin so, else files."""
    return _beginning(bundled_policies(), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return the newest runs that begin so, else files; an `--out` on the line is not known here."""
    results_dir = Path(os.environ.get(RESULTS_VARIABLE, "results"))
    return _beginning([run.name for run in newest_runs(results_dir)[:_MOST_RUNS]], incomplete)


def _beginning(names: list[str], incomplete: str) -> list[str]:
    found = [name for name in names if name.startswith(incomplete)]
    return found or _paths(incomplete)


def _paths(incomplete: str) -> list[str]:
    """Return what lies where was typed, directories with their slash."""
    directory, _, begun = incomplete.rpartition("/")
    place = Path(directory or ("/" if incomplete.startswith("/") else "."))
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return []
    before = f"{directory}/" if "/" in incomplete else ""
    return [
        f"{before}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if entry.name.startswith(begun) and not (entry.name.startswith(".") and not begun)
    ]
