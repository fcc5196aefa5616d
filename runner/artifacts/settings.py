"""Where files are fetched from, as the environment says it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UserError

GITHUB_RAW = "https://raw.githubusercontent.com"
HUB = "https://huggingface.co"
_YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class FetchSettings:
    """Addresses, token and patience of a fetch."""

    github_raw: str = GITHUB_RAW
    hub: str = HUB
    token: str | None = None
    offline: bool = False
    hub_cache: Path | None = None
    attempts: int = 6
    """Tries in a row of one file without a byte gained."""
    wait_s: float = 1.0
    """Wait before the second try; doubled with each, up to `wait_cap_s`."""
    wait_cap_s: float = 30.0
    longest_retry_after_s: float = 300.0
    """A server that asks for more patience than this is given up on."""
    connect_timeout_s: float = 20.0
    read_timeout_s: float = 60.0
    at_once: int = 4
    """Files that are fetched at once."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "FetchSettings":
        """Read HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, HF_HUB_CACHE, RECOUNT_GITHUB_RAW and RECOUNT_FETCH_*.

        Raises `UserError` for a number that is none and a token that cannot be sent.
        """
        env = os.environ if environment is None else environment
        home = Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
        home = home.expanduser()
        return cls(
            github_raw=(env.get("RECOUNT_GITHUB_RAW") or GITHUB_RAW).rstrip("/"),
            hub=(env.get("HF_ENDPOINT") or HUB).rstrip("/"),
            token=_checked_token(env.get("HF_TOKEN", ""), "HF_TOKEN")
            or _token_of(Path(env.get("HF_TOKEN_PATH") or home / "token")),
            offline=any(
                env.get(name, "").lower() in _YES for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
            ),
            hub_cache=Path(env.get("HF_HUB_CACHE") or home / "hub").expanduser(),
            attempts=int(_number(env, "RECOUNT_FETCH_ATTEMPTS", cls.attempts, least=1)),
            wait_s=_number(env, "RECOUNT_FETCH_WAIT_S", cls.wait_s),
            read_timeout_s=_number(env, "RECOUNT_FETCH_TIMEOUT_S", cls.read_timeout_s, least=0.01),
        )


def _number(env: Mapping[str, str], name: str, default: float, *, least: float = 0.0) -> float:
    written = env.get(name)
    if not written:
        return default
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise UserError(
            f"{name}={written} is no number of at least {least:g}", remedy="set it so, or unset it"
        )
    return value


def _token_of(path: Path) -> str | None:
    """Return the token that `hf auth login` left, if it did."""
    try:
        written = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, RuntimeError):
        return None
    return _checked_token(written, str(path))


def _checked_token(written: str, where: str) -> str | None:
    """Return the token without the white space around it; never print it."""
    token = written.strip()
    if not all("!" <= character <= "~" for character in token):
        raise UserError(
            f"the token in {where} holds a character that no token has (a space, a control character, or one"
            " beyond ASCII), and cannot be sent",
            remedy="copy it again, without quotes of a text processor, or unset it",
        )
    return token or None
