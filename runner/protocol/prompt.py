"""The protocol's sentences, which come from outside as a pack, and the messages made of them.

The sentences are the original's and not ours to ship, so they are data (`recount fetch` writes the pack;
a profile may bring another). The wire format of results is code, in `observation`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, TypedDict

SYSTEM: Literal["system"] = "system"
USER: Literal["user"] = "user"

_REQUIRED_PLACEHOLDERS = {"user_prompt_template": "{question}", "observation_template": "{text}"}
"""Without these the model would never see the problem, or what its action did."""


class PackError(ValueError):
    """A protocol pack that cannot be used; the message names where it is from and the key at fault."""


class Message(TypedDict):
    """One message of a conversation, as chat templates take it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ProtocolPack:
    """The sentences of a protocol. Field names are the keys of the pack file.

    A template's placeholders are exactly the words in braces named here; any other brace is text.
    """

    system_prompt: str
    user_prompt_template: str
    """Holds `{question}`."""
    observation_template: str
    """Holds `{text}`, may hold `{name}`, the action's."""
    format_check_name: str
    """The `{name}` of an observation that is about the form of a completion, not about an action."""
    answer_before_bash_warning: str
    no_action_warning: str
    blocked_command_observation: str
    unknown_action_template: str
    """May hold `{name}`."""
    empty_command_observation: str
    stop: tuple[str, ...]
    """Strings at which generation stops."""

    @classmethod
    def from_mapping(cls, mapping: object, origin: str) -> "ProtocolPack":
        """Read a pack from a decoded JSON document; other keys than ours are ignored.

        Raises `PackError` that names `origin` (a file, say) and the key that is missing or wrong.
        """
        if not isinstance(mapping, Mapping):
            raise PackError(f"{origin}: a protocol pack is an object, this is {_kind(mapping)}")
        texts = {
            name: _text(mapping, name, origin)
            for name in (field.name for field in fields(cls))
            if name != "stop"
        }
        for name, placeholder in _REQUIRED_PLACEHOLDERS.items():
            if placeholder not in texts[name]:
                raise PackError(f"{origin}: `{name}` does not contain {placeholder}")
        return cls(**texts, stop=_stop(mapping, origin))

    def unknown_action(self, name: str) -> str:
        """Return the observation for an action that is not `bash`."""
        return _fill(self.unknown_action_template, {"name": name})


def initial_messages(pack: ProtocolPack, question: str) -> list[Message]:
    """Return the prompt of a trajectory: system and user message."""
    return [
        {"role": SYSTEM, "content": pack.system_prompt},
        {"role": USER, "content": _fill(pack.user_prompt_template, {"question": question})},
    ]


def observation_message(pack: ProtocolPack, name: str, text: str) -> Message:
    """Return an observation as the user message that follows an action of `name`."""
    return {"role": USER, "content": _fill(pack.observation_template, {"name": name, "text": text})}


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace `{key}` for the given keys in one pass, so that braces in a value are text."""
    pattern = "|".join(re.escape(f"{{{key}}}") for key in values)
    return re.sub(pattern, lambda found: values[found.group()[1:-1]], template)


def _text(mapping: Mapping[object, object], key: str, origin: str) -> str:
    value = _value(mapping, key, origin)
    if not isinstance(value, str):
        raise PackError(f"{origin}: `{key}` is {_kind(value)}, not a string")
    return value


def _stop(mapping: Mapping[object, object], origin: str) -> tuple[str, ...]:
    value = _value(mapping, "stop", origin)
    if not isinstance(value, (list, tuple)):
        raise PackError(f"{origin}: `stop` is {_kind(value)}, not a list of strings")
    stops = []
    for item in value:
        if not isinstance(item, str) or not item:
            wrong = "an empty string" if item == "" else _kind(item)
            raise PackError(f"{origin}: `stop` holds {wrong}, not only strings that can be found in a text")
        stops.append(item)
    return tuple(stops)


def _value(mapping: Mapping[object, object], key: str, origin: str) -> object:
    if key not in mapping:
        raise PackError(f"{origin}: `{key}` is missing")
    return mapping[key]


def _kind(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
