"""Values of a run as Inspect's library takes them: text that is UTF-8, times with their zone, stable ids."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from runner.events import TurnDone

_ID_CHARS = 22
_SLUG_CHARS = 60


def model_name(engine: Mapping[str, Any]) -> str:
    """Return what the log calls the model: the kind of engine, and its model."""
    name = engine.get("model") or engine.get("source") or "unknown"
    return plain_text(f"{engine.get('kind', 'model')}/{name}")


def arguments(turn: TurnDone) -> dict[str, Any]:
    """Return the arguments of a turn's action; nothing where it has none."""
    found = None if turn.action is None else turn.action.get("arguments")
    plain = plain_json(found) if isinstance(found, Mapping) else {}
    return plain if isinstance(plain, dict) else {}


def plain_json(document: object) -> Any:  # noqa: ANN401 - JSON
    """Return JSON without halves of surrogate pairs, at whatever depth."""
    return json.loads(plain_text(json.dumps(document, ensure_ascii=False, default=str)))


def plain_text(text: str) -> str:
    """Return text as UTF-8 can hold it: models write halves of surrogate pairs."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def call_id(turn: TurnDone) -> str:
    """Return the id that ties a call to its result."""
    return f"turn-{turn.turn + 1}"


def message_id(turn: TurnDone, what: str) -> str:
    """Return the id of what was said or seen in a turn."""
    return stable_id(str(turn.key), str(turn.turn), what)


def stable_id(*parts: str) -> str:
    """Return an id that is the same every time: exporting twice gives the same samples."""
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()[:_ID_CHARS]


def moment(at: float) -> datetime:
    """Return a time of the journal, seconds since the epoch, with its zone."""
    return datetime.fromtimestamp(max(at, 0.0), tz=timezone.utc)


def iso_time(at: float) -> str:
    """Return it as text."""
    return moment(at).isoformat()


def file_time(at: float) -> str:
    """Return it as it stands in the names of logs."""
    return moment(at).strftime("%Y-%m-%dT%H-%M-%S-00-00")


def slug(text: str) -> str:
    """Return what of a name may stand in a file's."""
    return "".join(one if one.isalnum() and one.isascii() else "-" for one in text)[:_SLUG_CHARS]
