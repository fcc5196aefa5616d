"""`recount sandbox build`: the image that commands run in, from the files that come with Recount."""

from typing import Annotated

import typer

from runner.clean import clean_text
from runner.cli.output import line
from sandbox.build import build_image
from sandbox.policy import Policy
from sandbox.preflight import connect

EPILOG = """Examples:

  recount sandbox build

  recount sandbox build --base-image python:3.10.12-bookworm

In a checkout `docker compose build sandbox` builds the same. A few minutes and 1.2 GB, once."""


def build(
    tag: Annotated[str, typer.Option("--tag", help="The image's name.")] = str(
        Policy.model_fields["image"].default
    ),
    base_image: Annotated[
        str | None, typer.Option("--base-image", help="Another image of Debian 12 with Python 3.10.")
    ] = None,
) -> None:
    """Build the sandbox image on the Docker engine, without a checkout."""
    api = connect()
    try:
        build_image(api, tag, lambda said: line(clean_text(said, keep_lines=False)), base_image=base_image)
    finally:
        api.close()
    line(f"built {tag}; `recount sandbox check` tries every control of it")
