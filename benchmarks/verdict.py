"""Calibration of the verdict: how often its words are wrong, and how often its intervals miss.

    python benchmarks/verdict.py                  # 20,000 runs of every setting, about a minute on one core
    python benchmarks/verdict.py --runs 2000 --json calibration.json

A problem's rate is drawn from the Beta distribution that fits the published mean and max@k. A report and a
run are drawn from the rates (the run's lowered by 0, 2, 5 or 10 points) and judged by the verdict's own code,
with the report's rows and without them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table
from verdict_simulation import DROPS, POOLED, Result, Setting, simulate

from runner.verdict import VerdictSettings, load_published

DEFAULT_RUNS = 20_000
_WIDTH = 160


def main() -> None:
    """Simulate, print the tables, and write them as JSON where asked."""
    asked = _arguments()
    console = Console(width=_WIDTH)
    started = time.monotonic()
    published, settings = load_published(asked.published), VerdictSettings(margin=asked.margin)
    result = simulate(published, settings, runs=asked.runs, seed=asked.seed)
    settings_seen = sorted({setting for setting, _, _ in result}, key=lambda one: (one.profile, not one.rows))
    datasets = (*published.problems, POOLED)
    for table in (_words, _alarms, _coverage, _solved):
        console.print(table(result, settings_seen, datasets))
    console.print(
        f"{asked.runs} runs of every setting, seed {asked.seed}, {time.monotonic() - started:.0f} s"
    )
    if asked.json is not None:
        document = {"runs": asked.runs, "seed": asked.seed, "settings": settings.as_document()}
        asked.json.write_text(json.dumps(document | {"shares": list(_document(result))}, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS)
    parser.add_argument("--seed", type=int, default=20260811)
    parser.add_argument("--margin", type=float, default=VerdictSettings().margin)
    parser.add_argument(
        "--published", default="qwen35-4b-math-react", help="published figures: a name or a file"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _words(result: Result, settings: Sequence[Setting], datasets: Sequence[str]) -> Table:
    table = _table(
        "How often each word is said, by the points that the run's true mean lies below the published"
    )
    for drop in DROPS:
        table.add_column(f"differs {drop * 100:g}", justify="right")
    for drop in DROPS:
        table.add_column(f"reproduced {drop * 100:g}", justify="right")
    for setting in settings:
        for dataset in datasets:
            shares = [result[setting, dataset, drop].shares() for drop in DROPS]
            words = [f"{share[word]:.3f}" for word in ("differs", "reproduced") for share in shares]
            table.add_row(setting.name, dataset, *words)
    return table


def _alarms(result: Result, settings: Sequence[Setting], datasets: Sequence[str]) -> Table:
    table = _table("How often p < 0.05, before Holm; and, of equal runs, how often any word is `differs`")
    for drop in DROPS:
        table.add_column(f"p < 0.05 at {drop * 100:g}", justify="right")
    table.add_column("any data set", justify="right")
    table.add_column("any of the three", justify="right")
    for setting in settings:
        for dataset in datasets:
            shares = [result[setting, dataset, drop].shares() for drop in DROPS]
            row = [f"{share['p_below_alpha']:.3f}" for share in shares]
            if dataset == POOLED:
                row += [f"{shares[0][name]:.3f}" for name in ("any_dataset_differs", "anything_differs")]
            table.add_row(setting.name, dataset, *row)
    return table


def _coverage(result: Result, settings: Sequence[Setting], datasets: Sequence[str]) -> Table:
    table = _table("How often the 90 % interval of the difference holds the true difference")
    for drop in DROPS:
        table.add_column(f"at {drop * 100:g}", justify="right")
    for setting in settings:
        for dataset in datasets:
            shares = [result[setting, dataset, drop].shares() for drop in DROPS]
            table.add_row(setting.name, dataset, *(f"{share['covers_difference']:.3f}" for share in shares))
    return table


def _solved(result: Result, settings: Sequence[Setting], datasets: Sequence[str]) -> Table:
    table = _table("How often the 90 % range of pass@k and max@k holds it, if nothing differs")
    covered = [
        (setting, dataset, shares)
        for setting in settings
        for dataset in datasets
        if (shares := _covering(result, setting, dataset))
    ]
    names = sorted({name for _, _, shares in covered for name in shares})
    for name in names:
        table.add_column(name, justify="right")
    for setting, dataset, shares in covered:
        table.add_row(
            setting.name, dataset, *(f"{shares[name]:.3f}" if name in shares else "" for name in names)
        )
    return table


def _covering(result: Result, setting: Setting, dataset: str) -> dict[str, float]:
    shares = result[setting, dataset, 0.0].shares()
    return {name.removeprefix("covers "): share for name, share in shares.items() if "covers pass@" in name}


def _document(result: Result) -> Iterator[dict[str, Any]]:
    for (setting, dataset, drop), tally in result.items():
        yield {
            "profile": setting.profile,
            "rows": setting.rows,
            "dataset": dataset,
            "drop": drop,
            "runs": tally.runs,
            "shares": tally.shares(),
        }


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=MARKDOWN)
    table.add_column("setting", no_wrap=True)
    table.add_column("data set", no_wrap=True)
    return table


if __name__ == "__main__":
    main()
