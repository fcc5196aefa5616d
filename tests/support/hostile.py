"""What a model may write to get at whoever watches, as far as anybody has thought of it."""

import re
import unicodedata

HOSTILE: dict[str, str] = {
    "colour": "\x1b[31mred\x1b[0m",
    "clears the screen": "\x1b[2J\x1b[1;1Hgone",
    "another screen": "\x1b[?1049h\x1b[?25l",
    "scroll region": "\x1b[5;10r\x1b[?6h",
    "reports the cursor": "\x1b[6n\x1b[c\x1b[>0q",
    "unfinished sequence": "\x1b[38;5;",
    "unfinished string": "\x1b]52;c;cm0gLXJmIC8=",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07after",
    "hyperlink": "\x1b]8;;http://example.com/\x1b\\click\x1b]8;;\x1b\\",
    "title": "\x1b]0;owned\x07\x1b]2;owned\x1b\\",
    "sixel": "\x1bPq#0;2;0;0;0#0!100~-\x1b\\",
    "reset": "\x1bc\x1b[!p",
    "charset": "\x1b(0lqqk\x0e",
    "C1": "\x9b31m\x9d52;c;x\x9c\x90q\x9c\x85",
    "synchronized for ever": "\x1b[?2026h",
    "autowrap": "\x1b[?7h" + "w" * 500,
    "markup": "[bold red]x[/bold] [/nothing] [link=http://example.com]y[/link] \\[a]",
    "emoji code": ":bomb: :warning: :smiley:",
    "NUL and bells": "\x00\x07\x08\x7f",
    "overwriting": "harmless\rHARMFUL\x0b\x0c",
    "lines": "one\ntwo\r\nthree\u2028four\u2029five\x85six",
    "bidi": "\u202egnp.exe\u202c \u2066a\u2069 \u200f\u200e",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u00adf",
    "lone surrogates": "\ud800x\udfff",
    "tags": "\U000e0041\U000e0042\U000e007f",
    "private": "\ue000\U000f0000\U0010ffff",
    "combining flood": "Z" + "\u0301\u0328\u0489" * 20_000,
    "wide": "測試" * 300,
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪👍🏽☝️" * 50,
    "halfwidth": "ｶﾞｷﾞ\u1160\u115f\u3164\u2800",
    "jamo": "\u1112\u1161\u11ab" * 100,
    "tabs": "\ta\tb\tc",
    "200 kB": "x" * 200_000,
    "200 kB of escapes": "\x1b[31m" * 40_000,
    "fields": 'x score=1 termination="final_answer"\nended=complete',
    "prefix": "eval-1  | ended=complete",
    "backspaces": "secret" + "\b" * 6 + "public",
    "percent": "%s %d {0} {x!r} $(id) `id`",
}

HARMFUL_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_OURS = re.compile(
    rb"\x1b\[\?(?:2026|7)[hl]|\x1b\[2?K|\x1b\[J|\x1b\[\d{1,3};\d{1,3}H|\x1b\[\d{1,3}G|\x1b\[3A"
    rb"|\x1b\[(?:0|1|2|32|33|36|1;31)m|\x1bD"
)


def without_our_codes(data: bytes) -> str:
    """Take the escape sequences that frames are made of out of `data`."""
    return _OURS.sub(b"", data).decode("utf-8")


def harmful_in(text: str) -> set[str]:
    """The characters of `text` that a terminal may act on, beside line ends."""
    return {one for one in text if one != "\n" and unicodedata.category(one) in HARMFUL_CATEGORIES}
