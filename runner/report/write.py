"""Writes a run's page: reads the journal, derives everything from it, fills in the template."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from runner.atomic import write_text
from runner.clean import clean_text
from runner.events import EngineSample, RunResumed
from runner.journal import JOURNAL_NAME, read_run
from runner.report.content import content_of
from runner.report.figures import Figures, moment, span, written
from runner.report.packing import pack
from runner.report.samples import read_samples
from runner.report.transcripts import Scores
from runner.results.build import build_results
from runner.state import RunState
from runner.views.words import counts, duration

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("elements.js", "data.js", "list.js", "trajectory.js", "main.js")
"""In this order, as one script: the page may run nothing else."""


def report_from_journal(run_dir: Path, path: Path, scores: Scores) -> Path:
    """Write the page at `path` from a run's journal; return it."""
    state, journal = read_run(run_dir / JOURNAL_NAME)
    return report_of(run_dir, path, state, build_results(state, journal), scores)


def report_of(run_dir: Path, path: Path, state: RunState, results: Mapping[str, Any], scores: Scores) -> Path:
    """Write the page of a run whose journal was read and whose results were built already."""
    samples = read_samples(run_dir / JOURNAL_NAME)
    write_text(path, render_report(state, results, samples, scores))
    return path


def render_report(
    state: RunState,
    results: Mapping[str, Any],
    samples: Sequence[EngineSample | RunResumed],
    scores: Scores,
) -> str:
    """Return the page. The same journal and scores give the same bytes."""
    packed = pack(state, scores)
    script, style = _script(), _asset("report.css")
    figures = Figures(results)
    environment = _environment()
    environment.globals |= {"fig": figures.show}
    return environment.get_template("report.html.j2").render(
        **content_of(state, results, samples, scores),
        results=results,
        packed=packed,
        script=Markup(script),  # noqa: S704 - our own files, which hold no end tag
        style=Markup(style),  # noqa: S704 - our own file
        policy=_policy(script, style),
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": moment,
        "span": span,
        "duration": duration,
        "written": written,
        "counts": lambda found: counts(found, ", "),
        "pretty_json": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
    }
    return environment


def _cleaned(value: object) -> object:
    """Take out of every text, before it is escaped, what an editor or a page could act on."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean_text(value, keep_lines=True)
    return value


def _script() -> str:
    body = "\n".join(_asset(f"script/{name}") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{body}\n}})();\n'


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Allow this script and this style, by their hashes, and nothing else, whatever escaping might miss.

    No request may leave the page, and no text may become markup by way of a script. An empty icon is ours:
    without one, a browser asks for a file of that name.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
