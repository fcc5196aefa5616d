"""The `recount` command. Nothing imports this package; it only ties the others together."""

from runner.cli.main import main

__all__ = ["main"]
