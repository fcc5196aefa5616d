"""Making model-written text harmless to show. Every view and every text file goes through here."""

import re
import unicodedata

NEWLINE_SIGN = "⏎"
REPLACEMENT = "�"

_ESCAPE_SEQUENCE = re.compile(
    r"""
      \x1b \[ [0-?]* [ -/]* [@-~]                      # CSI
    | (?: \x1b [\]PX^_] | [\x90\x98\x9d-\x9f] )        # OSC, DCS, SOS, PM, APC and their C1 forms,
      [^\x07\x1b\x90\x98\x9c-\x9f]*                    # with their text,
      (?: \x07 | \x1b\\ | \x9c )                       # if they end: else the text would hide what follows
    | \x9b [0-?]* [ -/]* [@-~]                         # C1 CSI
    | \x1b [ -/]* [0-~]?                               # every other escape, and the begin of one without end
    """,
    re.VERBOSE,
)
_DROPPED = frozenset({"Cf", "Cs", "Co", "Cn", "Cc", "Zl", "Zp"})
_NOT_PLAIN = re.compile(r"[^ -~]+")
"""All but printable ASCII, which nothing is done to. Runs of it are looked at character by character."""


def clean_text(text: str, *, keep_lines: bool, limit_chars: int | None = None) -> str:
    """Return `text` without anything that a terminal, an editor or a page could act on.

    Escape sequences are removed whole; control, format (bidi, zero-width), surrogate and unassigned
    characters become U+FFFD; more than one combining mark in a row is dropped. Newlines are kept
    or shown as a sign, tabs become spaces. Cut to `limit_chars` first, so that what is shown bounds the cost.
    """
    cut = limit_chars is not None and len(text) > limit_chars
    if limit_chars is not None and cut:
        text = text[:limit_chars]
    text = _ESCAPE_SEQUENCE.sub("", text)
    newline = "\n" if keep_lines else NEWLINE_SIGN
    shown = _NOT_PLAIN.sub(lambda run: _clean_run(run.group(), newline), text)
    return shown + ("…" if cut else "")


def _clean_run(run: str, newline: str) -> str:
    shown: list[str] = []
    combining = False
    for character in run:
        category = unicodedata.category(character)
        is_mark = category.startswith("M")
        if character == "\n":
            shown.append(newline)
        elif character == "\t":
            shown.append("    ")
        elif category in _DROPPED:
            shown.append(REPLACEMENT)
        elif not (is_mark and combining):
            shown.append(character)
        combining = is_mark
    return "".join(shown)
