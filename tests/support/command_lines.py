"""Whether a command that a page shows is one that the programs know, found out without running it."""

import re
from collections.abc import Sequence
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

import typer

from runner.cli.main import app
from support.markdown import ROOT

_SERVICE = re.compile(r"^  ([a-z][a-z-]*):", re.MULTILINE)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_-]*|…|\.\.\.")
_COMPOSE_VALUES = frozenset(("--exit-code-from", "-p", "--project-name", "-f", "--file", "-e", "-v", "--env"))


@cache
def services() -> frozenset[str]:
    """The services of docker-compose.yml."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    return frozenset(_SERVICE.findall(text.split("\nservices:\n")[1].split("\nvolumes:\n")[0]))


def faults(words: Sequence[str], *, whole: bool) -> list[str]:
    """What is wrong with a command's words; nothing for other programs' commands.

    One that is not `whole` stands in a sentence and may lack arguments or list alternatives.
    """
    words = [word for word in words if word not in ("…", "...")]
    if not words:
        return []
    if words[0].rsplit("/", 1)[-1] == "recount":
        return _of_recount(words[1:], whole=whole)
    if words[:2] == ["docker", "compose"]:
        return _of_compose(words[2:], whole=whole)
    return []


def _of_compose(words: Sequence[str], *, whole: bool) -> list[str]:
    plain = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if not word.startswith("-") and before not in _COMPOSE_VALUES
    ]
    named = [after for before, after in pairwise(words) if before == "--exit-code-from"]
    verb = plain[0] if plain else ""
    rest = plain[1:]
    if verb in ("up", "build", "logs"):
        named += rest
    elif verb in ("run", "exec", "attach"):
        named += rest[:1]
    found = [f"docker-compose.yml has no service {name}" for name in named if not _known_service(name)]
    if found or verb not in ("run", "exec") or len(rest) < 2:
        return found
    command = list(words[list(words).index(rest[0]) + 1 :])
    if verb == "exec":
        return faults(command, whole=whole)
    return _of_recount(command, whole=whole) if not rest[0].endswith("broker") else []


def _known_service(name: str) -> bool:
    return name in services() or bool(_PLACEHOLDER.fullmatch(name))


def _of_recount(words: Sequence[str], *, whole: bool) -> list[str]:
    command = _recount()
    context: Any = command.make_context("recount", [], resilient_parsing=True)
    said = "recount"
    rest = list(words)
    while hasattr(command, "commands"):
        while rest and rest[0].startswith("-"):
            if rest[0] not in {name for param in command.params for name in param.opts} | {"-h", "--help"}:
                return [f"{said} has no option {rest[0]}"]
            del rest[0]
        if not rest:
            return []
        name = rest.pop(0)
        if not whole:
            name = name.rstrip(",")
        if name not in command.commands:
            return [] if _PLACEHOLDER.fullmatch(name) else [f"{said} has no command {name}"]
        command, said = command.commands[name], f"{said} {name}"
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    return _of_leaf(command, context, said, rest, whole=whole)


@cache
def _recount() -> Any:
    return typer.main.get_command(app)


def _choices(annotation: Any) -> set[str]:
    """The values of an option that has a closed set of them; of any other none."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {str(one.value) for one in annotation}
    if get_origin(annotation) is Literal:
        return set(map(str, get_args(annotation)))
    return {value for inner in get_args(annotation) for value in _choices(inner)}


def _of_leaf(command: Any, context: Any, said: str, words: Sequence[str], *, whole: bool) -> list[str]:
    """Options exist and have their values, choices are among theirs, arguments are not too many or few."""
    options = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    arguments: list[str] = []
    left = [word.strip("[]") for word in words]
    while left:
        word = left.pop(0)
        name, _, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            arguments.append(word)
        elif name in context.help_option_names:
            continue
        elif name not in options:
            return [f"{said} has no option {name}"]
        elif not getattr(options[name], "is_flag", False):
            if not value and not left:
                return [f"{said}: {name} lacks its value"] if whole else []
            known = _choices(options[name].type_descriptor.annotation)
            if wrong := _not_among(known, value or left.pop(0)):
                return [f"{said}: {name} is none of {', '.join(sorted(known))}: {wrong}"]
    return _of_arguments(command, said, arguments) if whole else []


def _not_among(known: set[str], value: str) -> str | None:
    """A value that a closed set has not; a sentence may name several with a bar between them."""
    if not known or _PLACEHOLDER.fullmatch(value):
        return None
    return next((one for one in value.split("|") if one not in known), None)


def _of_arguments(command: Any, said: str, arguments: Sequence[str]) -> list[str]:
    taken = [param for param in command.params if param.param_type_name == "argument"]
    least = sum(1 for param in taken if param.required)
    most = len(arguments) if any(param.nargs < 0 for param in taken) else len(taken)
    if least <= len(arguments) <= most:
        return []
    return [f"{said} takes {least} to {most} arguments: {arguments}"]
