"""Ray's token: who does not send it is refused by every port of the cluster (ray 2.56.1).

It is one secret for all nodes. Ray reads it from `RAY_AUTH_TOKEN`, or the file that `RAY_AUTH_TOKEN_PATH`
names, or `~/.ray/auth_token`, in this order, and asks for it where `RAY_AUTH_MODE` is `token`. It is sent as
it is, without encryption: it keeps strangers out of a private network, and makes no public one private.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UserError

MODE_VARIABLE = "RAY_AUTH_MODE"
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"  # noqa: S105 - a variable's name
PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"
TOKEN_MODE = "token"  # noqa: S105 - one of Ray's modes
DISABLED = "disabled"
_TOKEN_BYTES = 32
_OWNER_ONLY = 0o600
_OTHERS = 0o077


@dataclass(frozen=True)
class Token:
    """Where the token was found. The secret itself is Ray's to read."""

    where: str
    warning: str = ""


def default_path(environment: Mapping[str, str]) -> Path:
    """Return where Ray looks last."""
    return Path(environment.get("HOME") or Path.home()) / ".ray" / "auth_token"


def find_token(environment: Mapping[str, str] | None = None) -> Token | None:
    """Return where there is a token, as Ray would look for it; None where there is none.

    Raises `UserError` for a file that is named and cannot be read, or is empty: Ray would go without.
    """
    values = os.environ if environment is None else environment
    if values.get(TOKEN_VARIABLE):
        return Token(TOKEN_VARIABLE)
    named = values.get(PATH_VARIABLE)
    path = Path(named) if named else default_path(values)
    try:
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except OSError as error:
        if not named:
            return None
        raise UserError(
            f"{PATH_VARIABLE}={named}: {error.strerror or error}", remedy="name a file that holds the token"
        ) from error
    if not text:
        raise UserError(f"{path} is empty", remedy="write the cluster's token into it")
    warning = f"{path} can be read by others than its owner (chmod 600)" if mode & _OTHERS else ""
    return Token(str(path), warning)


def make_token(environment: Mapping[str, str] | None = None) -> Token:
    """Write a new token where Ray looks last, for its owner alone. Raises `UserError`."""
    path = default_path(os.environ if environment is None else environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_TOKEN_BYTES))
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}",
            remedy=f"write a token into a file of yours, and name it with {PATH_VARIABLE}",
        ) from error
    return Token(str(path))


def is_disabled(environment: Mapping[str, str] | None = None) -> bool:
    """Whether somebody chose to go without, which is said out loud and never assumed."""
    values = os.environ if environment is None else environment
    return values.get(MODE_VARIABLE, "").lower() == DISABLED


def use_token() -> None:
    """Have this process send the token that is here to the cluster, unless a mode is chosen already."""
    if MODE_VARIABLE not in os.environ and find_token() is not None:
        os.environ[MODE_VARIABLE] = TOKEN_MODE
