"""The plain summary at a run's end: tables for a terminal, and the same as text in `summary.txt`."""

import io
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.protocol.score import SCORE_METHOD_PREFIX
from runner.results.throughput import throughput_lines

TEXT_WIDTH = 100
_SHOWN_UNFINISHED = 5


def summary_text(results: Mapping[str, Any]) -> str:
    """Return the summary without colour, `TEXT_WIDTH` columns wide."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=TEXT_WIDTH, no_color=True, highlight=False, force_terminal=False)
    console.print(render_summary(results))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def render_summary(results: Mapping[str, Any]) -> RenderableType:
    """Return the summary as rich renderables; everything that came from files or models is cleaned."""
    parts: list[RenderableType] = [
        Text(f"Recount {results['recount']}   run {_plain(results['run_id'])}", style="bold")
    ]
    parts.append(_headline(results["datasets"]))
    for name, dataset in results["datasets"].items():
        parts += [Text(""), _details(name, dataset)]
        parts += _unfinished(dataset)
    parts += [Text(""), *throughput_lines(results["engines"]), *_notes(results)]
    parts += [Text(""), *_verdict(results)]
    return Group(*parts)


def _headline(datasets: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header, justify in (
        ("data set", "left"),
        ("problems", "right"),
        ("samples", "right"),
        ("scored", "right"),
        ("mean@k", "right"),
        ("max@k", "right"),
        ("pass@k", "right"),
        ("no score", "right"),
    ):
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name, dataset in datasets.items():
        summary, samples = dataset["summary"], dataset["summary"]["samples"]
        missing = dataset["mean"]["planned"] - dataset["mean"]["scored"]
        pass_k = dataset["pass_at_k"].get(str(samples))
        table.add_row(
            Text(_plain(name)),
            str(dataset["problems"]),
            str(samples),
            f"{dataset['mean']['scored']}/{dataset['mean']['planned']}",
            _mean(dataset["mean"]),
            f"{summary[f'max@{samples}']:.4f}" if summary["count"] else "none",
            "none" if pass_k is None else f"{pass_k:.4f}",
            Text(str(missing), style="bold red" if missing else ""),
        )
    return table


def _mean(mean: Mapping[str, Any]) -> str:
    if mean["value"] is None:
        return "none"
    error = mean["standard_error"]
    return f"{mean['value']:.4f}" + ("" if error is None else f" ±{error:.4f}")


def _details(name: str, dataset: Mapping[str, Any]) -> Table:
    summary, tools, tokens = dataset["summary"], dataset["tools"], dataset["tokens"]
    table = Table(
        box=None,
        show_header=False,
        pad_edge=False,
        title_justify="left",
        title=Text(_plain(name), style="bold"),
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    pass_at_k = dataset["pass_at_k"]
    rows: list[tuple[str, str]] = [
        ("terminations", _counts(summary["termination_reasons"])),
        ("score methods", _counts(summary["score_methods"])),
        ("answers", _counts(summary["answer_statuses"])),
        ("by sample", "  ".join(f"{k}: {one['mean_score']:.4f}" for k, one in summary["by_sample"].items())),
        ("pass@k", "  ".join(f"{k}: {value:.4f}" for k, value in pass_at_k.items())),
        ("errors", f"{summary['error_count']} context or request"),
        ("actions", _actions(tools)),
        ("tokens", f"{tokens['generated']} generated, largest context {tokens['largest_context']}"),
    ]
    if dataset["infrastructure_retries"]:
        rows.append(("retries", f"{dataset['infrastructure_retries']} after failures of our own"))
    for label, value in rows:
        table.add_row(label, Text(value or "none"))
    return table


def _actions(tools: Mapping[str, Any]) -> str:
    text = f"{tools['actions']} run, {tools['nonzero_exit']} with a non-zero exit code"
    text += f", {tools['timed_out']} timed out" if tools["timed_out"] else ""
    text += f", limits hit: {_counts(tools['limits'])}" if tools["limits"] else ""
    text += (
        f", modules missing: {_plain(_counts(tools['missing_modules']))}" if tools["missing_modules"] else ""
    )
    return text + (f", network refused {tools['refused_network']}" if tools["refused_network"] else "")


def _counts(counts: Mapping[str, int]) -> str:
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{_plain(name).removeprefix(SCORE_METHOD_PREFIX)} {count}" for name, count in items)


def _unfinished(dataset: Mapping[str, Any]) -> Iterable[Text]:
    mean = dataset["mean"]
    if mean["planned"] == mean["scored"]:
        return
    yield Text(
        f"{mean['planned'] - mean['scored']} of {mean['planned']} trajectories have no score"
        f" ({dataset['not_started']} never started): the mean lies between {mean['if_missing_wrong']:.4f}"
        f" and {mean['if_missing_right']:.4f}",
        style="bold red",
    )
    for one in dataset["unfinished"][:_SHOWN_UNFINISHED]:
        cause = clean_text(str(one["cause"]), keep_lines=False, limit_chars=160)
        yield Text(f"  {_plain(one['task_id'])} sample {one['sample_index']}: {cause}", style="red")


def _notes(results: Mapping[str, Any]) -> Iterable[Text]:
    yield Text(f"{results['end'] or 'killed'} after {_work(results['timings'])}", style="dim")
    for note in results["concurrency"]["notes"]:
        yield Text(f"host: {_plain(note)}", style="dim")
    if results["verdict"] is None:  # which would name them itself
        for reason in results["deviations"]:
            yield Text(f"no reproduction: {_plain(reason)}", style="dim")
    journal = results["journal"]
    if journal is not None:
        yield Text(f"journal: {journal['events']} events, SHA-256 {journal['sha256']}", style="dim")


def _work(timings: Mapping[str, Any]) -> str:
    """Say how long the run was at work, and what it waited for."""
    text = f"{timings['wall_s']:.1f} s"
    if len(timings["parts"]) > 1:
        text += f" in {len(timings['parts'])} parts, {timings['paused_s']:.1f} s between them"
    if timings["disk_full_s"]:
        text += f", {timings['disk_full_s']:.1f} s of it without room on the disk"
    if timings["pauses"]:
        text += f", {timings['faulty_s']:.1f} s of it paused by failures of our own side"
    return text


def _verdict(results: Mapping[str, Any]) -> Iterable[Text]:
    """Yield the verdict last: it is what the run was for. Its lines are cleaned where they are made."""
    if results["verdict"] is None:
        yield Text(f"no verdict: {_plain(results['no_verdict_because'])}", style="dim")
    for index, line in enumerate(results["verdict_lines"]):
        yield Text(line, style="" if index else "bold")


def _plain(text: object) -> str:
    return clean_text(str(text), keep_lines=False, limit_chars=200)
