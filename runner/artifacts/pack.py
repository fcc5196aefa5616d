"""The protocol pack, read out of the original's sources without running them.

Each sentence is found by where it stands in the syntax tree: the function, the condition it answers, the
name it is assigned to. A source that has changed its shape is refused, never read half.
"""

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from runner.artifacts.files import write_here
from runner.artifacts.manifest import Pack
from runner.errors import UserError
from runner.hashing import sha256_file, sha256_text
from runner.paths import is_file
from runner.protocol.prompt import PackError, ProtocolPack

REMEDY = "fetch the protocol's sources at the manifest's commit"
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NodeT = TypeVar("_NodeT", bound=ast.AST)


class SourceShapeError(ValueError):
    """A source in which a sentence is not where it stood."""


def read_sources(messages_source: Path, loop_source: Path) -> ProtocolPack:
    """Return the pack that two sources hold: the one with the messages and the one with the loop.

    Raises `UserError` naming the file where one is missing, is no Python, or has another shape.
    """
    messages, loop = _parse(messages_source), _parse(loop_source)
    document: dict[str, object] = {}
    for path, tree, readers in (
        (messages_source, messages, _FROM_MESSAGES),
        (loop_source, loop, _FROM_LOOP),
    ):
        for key, read in readers.items():
            try:
                document[key] = read(tree)
            except SourceShapeError as error:
                raise UserError(f"{path}: `{key}` cannot be read: {error}", remedy=REMEDY) from error
    try:
        return ProtocolPack.from_mapping(document, f"{messages_source.name}, {loop_source.name}")
    except PackError as error:
        raise UserError(str(error), remedy=REMEDY) from error


def render_pack(pack: ProtocolPack) -> str:
    """Return the pack's file: JSON with sorted keys, one form for one content."""
    return json.dumps(asdict(pack), sort_keys=True, ensure_ascii=False, indent=1) + "\n"


def check_pack(pack: ProtocolPack, wanted: Pack) -> tuple[str, ...]:
    """Return how the pack differs from the manifest's hashes, a line each; nothing where it does not."""
    found = {
        "system prompt": (wanted.system_prompt_sha256, sha256_text(pack.system_prompt)),
        "user prompt template": (
            wanted.user_prompt_template_sha256,
            sha256_text(pack.user_prompt_template),
        ),
        "pack": (wanted.sha256, sha256_text(render_pack(pack))),
    }
    return tuple(
        f"the protocol's {what} is another\n  expected SHA-256 {expected}\n  found    SHA-256 {got}"
        for what, (expected, got) in found.items()
        if expected is not None and expected != got
    )


def write_pack(pack: ProtocolPack, path: Path) -> None:
    """Write the pack's file whole or not at all, unless it is there: its directory may be read-only."""
    if not is_written(pack, path):
        write_here(path, render_pack(pack))


def is_written(pack: ProtocolPack, path: Path) -> bool:
    """Say whether the pack's file is there and is this pack's."""
    return is_file(path) and sha256_file(path) == sha256_text(render_pack(pack))


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=path.name)
    except FileNotFoundError as error:
        raise UserError(f"the protocol's source {path} is missing", remedy=REMEDY) from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}", remedy="make the file readable") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} is no Python source: {error}", remedy=REMEDY) from error


def _prompt(role: str) -> Callable[[ast.Module], str]:
    """Read the content that `math_react_messages` returns for a role, without the optional skill."""

    def read(tree: ast.Module) -> str:
        function = _function(tree, "math_react_messages")
        for returned in _nodes(function, ast.Return):
            for message in _nodes(returned, ast.Dict):
                fields = {
                    key.value: value
                    for key, value in zip(message.keys, message.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                said = fields.get("role")
                if isinstance(said, ast.Constant) and said.value == role and "content" in fields:
                    return _text(_resolve(function, fields["content"]), _prompt_field)
        raise SourceShapeError(f"math_react_messages returns no message of {role}")

    return read


def _prompt_field(value: ast.expr) -> str | None:
    """The two things a prompt is filled with: a skill, of which there is none here, and the question."""
    if isinstance(value, ast.Attribute) and value.attr == "question":
        return "{question}"
    return "" if isinstance(value, ast.Name) and value.id.startswith("skill") else None


def _observation_template(tree: ast.Module) -> str:
    function = _function(tree, "react_observation_text")
    parameters = [one.arg for one in function.args.args]
    if len(parameters) != 2:
        raise SourceShapeError("react_observation_text does not take a name and a text")
    names = dict(zip(parameters, ("{name}", "{text}"), strict=True))
    return _text(
        _only(function, ast.Return, "return").value,
        lambda value: names.get(value.id) if isinstance(value, ast.Name) else None,
    )


def _blocked_observation(tree: ast.Module) -> str:
    function = _function(tree, "run_bash")
    for branch in _nodes(function, ast.If):
        called = branch.test.func if isinstance(branch.test, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "is_dangerous_bash_command":
            return _text(_only(branch.body[0], ast.Return, "return").value)
    raise SourceShapeError("run_bash does not ask is_dangerous_bash_command")


def _warning(condition: Callable[[ast.expr], bool]) -> Callable[[ast.Module], str]:
    """Read what is assigned to `warning` in the branch with this condition."""

    def read(tree: ast.Module) -> str:
        branch = _branch(_function(tree, "rollout_batch"), condition)
        return _text(_assigned(branch.body, "warning"))

    return read


def _format_check_name(tree: ast.Module) -> str:
    """Read the name under which both warnings become observations."""
    names = {
        _text(call.args[0])
        for call in _nodes(_function(tree, "rollout_batch"), ast.Call)
        if isinstance(call.func, ast.Name)
        and call.func.id == "react_observation_text"
        and len(call.args) == 2
        and isinstance(call.args[1], ast.Name)
        and call.args[1].id == "warning"
    }
    if len(names) != 1:
        raise SourceShapeError(f"warnings become observations under {len(names)} names")
    return names.pop()


def _empty_observation(tree: ast.Module) -> str:
    branch = _branch(_function(tree, "rollout_batch"), _is_not_stripped("command"))
    return _text(_assigned(branch.body, "observation"))


def _unknown_action(tree: ast.Module) -> str:
    branch = _branch(_function(tree, "rollout_batch"), _is_equal("name", "bash"))
    return _text(
        _assigned(branch.orelse, "observation"),
        lambda value: "{name}" if isinstance(value, ast.Name) and value.id == "name" else None,
    )


def _stop(tree: ast.Module) -> list[str]:
    for call in _nodes(_function(tree, "_sampling_params"), ast.Call):
        for keyword in call.keywords:
            if keyword.arg == "stop" and isinstance(keyword.value, ast.List | ast.Tuple):
                return [_text(one) for one in keyword.value.elts]
    raise SourceShapeError("_sampling_params gives no stop strings")


def _is_not(value: ast.expr, name: str) -> bool:
    return (
        isinstance(value, ast.UnaryOp)
        and isinstance(value.op, ast.Not)
        and isinstance(value.operand, ast.Name)
        and value.operand.id == name
    )


def _answer_without_action(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.And)
        and len(test.values) == 2
        and isinstance(test.values[0], ast.Name)
        and _is_not(test.values[1], "action")
    )


def _no_action(test: ast.expr) -> bool:
    return _is_not(test, "action")


def _is_not_stripped(name: str) -> Callable[[ast.expr], bool]:
    return lambda test: ast.unparse(test) == f"not {name}.strip()"


def _is_equal(name: str, value: str) -> Callable[[ast.expr], bool]:
    return lambda test: ast.unparse(test) == f"{name} == {value!r}"


_FROM_MESSAGES: Mapping[str, Callable[[ast.Module], object]] = {
    "system_prompt": _prompt("system"),
    "user_prompt_template": _prompt("user"),
    "observation_template": _observation_template,
    "blocked_command_observation": _blocked_observation,
}
_FROM_LOOP: Mapping[str, Callable[[ast.Module], object]] = {
    "format_check_name": _format_check_name,
    "answer_before_bash_warning": _warning(_answer_without_action),
    "no_action_warning": _warning(_no_action),
    "empty_command_observation": _empty_observation,
    "unknown_action_template": _unknown_action,
    "stop": _stop,
}


def _function(tree: ast.Module, name: str) -> _Function:
    found = [one for one in ast.walk(tree) if isinstance(one, _Function) and one.name == name]
    if len(found) != 1:
        raise SourceShapeError(f"there are {len(found)} functions {name}, not one")
    return found[0]


def _branch(function: _Function, condition: Callable[[ast.expr], bool]) -> ast.If:
    found = [one for one in _nodes(function, ast.If) if condition(one.test)]
    if len(found) != 1:
        raise SourceShapeError(f"{function.name} has {len(found)} branches of this kind, not one")
    return found[0]


def _assigned(body: list[ast.stmt], name: str) -> ast.expr:
    """Return the value assigned to a name in these statements themselves, not in inner branches."""
    found = [
        one.value
        for one in body
        if isinstance(one, ast.Assign)
        and len(one.targets) == 1
        and isinstance(one.targets[0], ast.Name)
        and one.targets[0].id == name
    ]
    if len(found) != 1:
        raise SourceShapeError(f"`{name}` is assigned {len(found)} times, not once")
    return found[0]


def _resolve(function: _Function, value: ast.expr) -> ast.expr:
    """Return what a local name was assigned, or the value itself."""
    return _assigned(function.body, value.id) if isinstance(value, ast.Name) else value


def _nodes(tree: ast.AST, kind: type[_NodeT]) -> Iterator[_NodeT]:
    return (one for one in ast.walk(tree) if isinstance(one, kind))


def _only(tree: ast.AST, kind: type[_NodeT], what: str) -> _NodeT:
    found = list(_nodes(tree, kind))
    if len(found) != 1:
        raise SourceShapeError(f"there are {len(found)} {what} statements, not one")
    return found[0]


def _text(value: ast.expr | None, field: Callable[[ast.expr], str | None] = lambda _: None) -> str:
    """Return a string literal; what an f-string is filled with becomes what `field` says.

    Raises `SourceShapeError` for anything else: what is computed cannot be read.
    """
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(_piece(one, field) for one in value.values)
    shown = "nothing" if value is None else f"`{ast.unparse(value)[:60]}`"
    raise SourceShapeError(f"{shown} is no literal text")


def _piece(piece: ast.expr, field: Callable[[ast.expr], str | None]) -> str:
    if not isinstance(piece, ast.FormattedValue):
        return _text(piece)
    said = field(piece.value)
    if said is None or piece.conversion != -1 or piece.format_spec is not None:
        raise SourceShapeError(f"`{ast.unparse(piece.value)[:60]}` stands in the text")
    return said
