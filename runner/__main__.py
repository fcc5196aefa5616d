"""`python -m runner`: the `recount` command."""

from runner.cli import main

main()
