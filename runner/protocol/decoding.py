"""Decoding one JSON value from the start of a text, as Python's decoder does, without its recursion.

The standard decoder calls itself for every level of nesting. How deep it gets depends on the Python
version and on how deep the caller already stands, so the same completion could end a trajectory on one
machine and not on another. Here the limits are constants. Strings, numbers and literals are left to
the standard decoder, so `NaN`, surrogates, control characters and escapes are read exactly as there.
"""

import json
import re
from dataclasses import dataclass, field

MAX_DEPTH = 900
"""Levels of nesting that are decoded.

The original had Python 3.10's recursion limit of 1,000 less the stack it stood on. This is below that,
by the room that writing and reading back a decoded value (`str`, `json`) needs on a stack of our own.
"""

MAX_INT_DIGITS = 4300
"""Digits of the longest integer that Python converts unless it is told otherwise (3.10.7 and later)."""


class TurnParseError(ValueError):
    """A completion at which the original's parser failed with an exception of its own.

    There only text that is not JSON is given the relaxed reading. Nesting beyond the recursion limit and
    integers beyond the digit limit raise something else, and that ends the trajectory as a request error.
    `original` is that error in the form of results files, `Type: message`, as the report's Python 3.10
    words it.
    """

    def __init__(self, original: str) -> None:
        super().__init__(original)
        self.original = original


def recursion_error(doing: str) -> TurnParseError:
    """Return the error for nesting too deep, `doing` being what Python's message ends in."""
    return TurnParseError(f"RecursionError: maximum recursion depth exceeded while {doing}")


def decode_first_value(text: str) -> object:
    """Decode the JSON value at the start of `text` and ignore what follows it.

    Same results as `json.JSONDecoder().raw_decode(text)[0]`: the last of equal keys wins.

    Raises `json.JSONDecodeError` where there is no such value, and `TurnParseError` where more than
    `MAX_DEPTH` levels or an integer of more than `MAX_INT_DIGITS` digits come before that shows.
    """
    unfinished: list[_Array | _Object] = []
    at = 0
    while True:  # once a value that starts at `at`
        opening = text[at : at + 1]
        if opening and opening in "{[":
            container: _Array | _Object = _Object() if opening == "{" else _Array()
            if len(unfinished) == MAX_DEPTH:
                raise recursion_error(f"decoding a JSON {container.kind} from a unicode string")
            at = _skip_white_space(text, at + 1)
            if text[at : at + 1] != container.closing:
                unfinished.append(container)
                at = container.before_value(text, at)
                continue
            value: object = container.value
            at += 1
        else:
            value, at = _SCALARS.raw_decode(text, at)
        while unfinished:  # once a container that a value ended in
            container = unfinished[-1]
            container.add(value)
            at = _skip_white_space(text, at)
            mark = text[at : at + 1]
            if mark == ",":
                at = container.before_value(text, _skip_white_space(text, at + 1))
                break
            if mark != container.closing:
                raise json.JSONDecodeError(f"Expecting ',' or '{container.closing}'", text, at)
            value = unfinished.pop().value
            at += 1
        else:
            return value


@dataclass
class _Array:
    value: list[object] = field(default_factory=list)
    kind = "array"
    closing = "]"

    def before_value(self, _text: str, at: int) -> int:
        """Return where the next value starts."""
        return at

    def add(self, value: object) -> None:
        self.value.append(value)


@dataclass
class _Object:
    value: dict[str, object] = field(default_factory=dict)
    key: str = ""
    kind = "object"
    closing = "}"

    def before_value(self, text: str, at: int) -> int:
        """Read a key and its colon; return where its value starts."""
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        self.key, at = _SCALARS.raw_decode(text, at)
        at = _skip_white_space(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        return _skip_white_space(text, at + 1)

    def add(self, value: object) -> None:
        self.value[self.key] = value


_WHITE_SPACE = re.compile(r"[ \t\n\r]*")


def _skip_white_space(text: str, at: int) -> int:
    match = _WHITE_SPACE.match(text, at)
    return at if match is None else match.end()


def _int(digits: str) -> int:
    count = len(digits.lstrip("-"))
    if count > MAX_INT_DIGITS:
        raise TurnParseError(
            f"ValueError: Exceeds the limit ({MAX_INT_DIGITS}) for integer string conversion: "
            f"value has {count} digits; use sys.set_int_max_str_digits() to increase the limit"
        )
    return int(digits)


_SCALARS = json.JSONDecoder(parse_int=_int)
"""Only ever called at a string, number or literal, so it does not recurse."""
