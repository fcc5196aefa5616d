"""`recount profiles`: what the bundled profiles are, side by side."""

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from runner.clean import clean_text
from runner.cli.completion import complete_profile
from runner.cli.output import line, out
from runner.profile import Profile, load_profile
from runner.resources import bundled_profiles

EPILOG = """Examples:

  recount profiles

  recount profiles interval25 final4

  recount profiles final4 my-profile.toml --differing"""

_ELLIPSIS_CHARS = 16
"""Of a SHA-256; the whole of it stands in the profile's file."""


def profiles(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROFILE]...",
            help="Names or TOML files; else all bundled.",
            autocompletion=complete_profile,
        ),
    ] = None,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only settings in which they are not all alike.")
    ] = False,
) -> None:
    """Show profiles side by side, setting by setting."""
    loaded = [load_profile(one) for one in names or bundled_profiles()]
    table = Table(box=None, pad_edge=False)
    table.add_column("setting", style="dim", no_wrap=True)
    for one in loaded:
        table.add_column(one.name, overflow="fold", max_width=44)
    rows = [settings_of(one) for one in loaded]
    sections = list(Profile.model_fields)
    settings = dict.fromkeys(name for row in rows for name in row)
    for setting in sorted(settings, key=lambda name: sections.index(name.partition(".")[0])):
        values = [row.get(setting, "") for row in rows]
        if not differing or len(set(values)) > 1:
            table.add_row(setting, *(Text(clean_text(value, keep_lines=False)) for value in values))
    out.print(table)
    if names is None:
        line("a setting is changed with an option of `recount eval`, or in a file: docs/profiles.md")


def settings_of(profile: Profile) -> dict[str, str]:
    """Return all settings of a profile in their order, by dotted name, as a person reads them."""
    rows: dict[str, str] = {}
    for name, value in profile.model_dump(mode="json").items():
        if name == "name":
            continue
        if name == "datasets":
            for one in value:
                rows |= _flat(f"datasets.{one.pop('name')}", one)
        else:
            rows |= _flat(name, value)
    return rows


def _flat(name: str, value: Any) -> dict[str, str]:  # noqa: ANN401 - a document's value
    if isinstance(value, dict):
        return {
            key: text for inner, one in value.items() for key, text in _flat(f"{name}.{inner}", one).items()
        }
    if value is None:
        return {}
    if name.endswith(".sha256"):
        return {name: f"{value[:_ELLIPSIS_CHARS]}…"}
    if isinstance(value, bool):
        return {name: "yes" if value else "no"}
    if isinstance(value, list):
        return {name: ", ".join(str(one) for one in value) or "none"}
    return {name: str(value)}
