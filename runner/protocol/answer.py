"""Where a completion's answer stands, and what of it is compared.

Two answers are kept apart: the *explicit* one, which alone is credited, and the *displayed* one, which
falls back on the last number or line so that a table of results shows something.
"""

import re

_THINK_OPEN = re.compile(r"<think>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think>", re.IGNORECASE)

_BOX = "\\boxed{"
_BOX_AFTER_BACKSPACE = "\x08oxed{"
"""What is left of a box where somebody read `\\b` as the escape for a backspace."""
_BRACE = re.compile(r"[{}]")
_FLAT_BOX = re.compile(r"\\boxed\{([^{}]+)\}")

_WHITE_SPACE = re.compile(r"\s*")
_ANSWER_LABEL = re.compile(r"(?:final answer|answer)\s*[:：]", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:/\d+)?")


def strip_think(text: str) -> str:
    """Remove every `<think>…</think>`, in any case, each up to the nearest end, and strip.

    An opening without an end stays, and so does an end without an opening.
    """
    kept: list[str] = []
    at = 0
    # Once an opening has no end behind it no later one has, so the search for ends is never repeated.
    while (opening := _THINK_OPEN.search(text, at)) and (end := _THINK_CLOSE.search(text, opening.end())):
        kept.append(text[at : opening.start()])
        at = end.end()
    kept.append(text[at:])
    return "".join(kept).strip()


def last_boxed(text: str) -> str | None:
    r"""Return what the last `\boxed{` holds up to its balancing brace, stripped; None if unbalanced.

    A box that lost its first two characters to a backspace (U+0008) counts only where no whole one stands.
    """
    for opening in (_BOX, _BOX_AFTER_BACKSPACE):
        found = text.rfind(opening)
        if found >= 0:
            return _up_to_balancing_brace(text, found + len(opening))
    return None


def _up_to_balancing_brace(text: str, start: int) -> str | None:
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[start : brace.start()].strip()
    return None


def final_answer_line(text: str) -> str | None:
    r"""Return the answer of the last final-answer line: its last box, else its text, stripped.

    Such a line begins, after white space, with `final answer` (one plain space) or `answer`, white space,
    `:` or `：`, white space, and at least one character up to the end of the line. Only `\n` ends a line,
    but white space is any and may span lines: an answer on the next line counts, and a label right after
    a label that stands alone is that label's answer, not a line of its own.
    The result may be empty (`Final answer: \boxed{}`), which is not the same as None.
    """
    answer: str | None = None
    at = 0  # a line's start
    while at < len(text):
        at = _skip_white_space(text, at)  # the starts of blank lines lead to the same word
        if label := _ANSWER_LABEL.match(text, at):
            at = _skip_white_space(text, label.end())
            if at == len(text):
                # Only white space follows. The "at least one character" is one of it, if one is no line end.
                return "" if text[label.end() :].strip("\n") else _boxed_or_whole(answer)
        line_end = text.find("\n", at)
        if line_end < 0:
            line_end = len(text)
        if label:
            answer = text[at:line_end].strip()
        at = line_end + 1
    return _boxed_or_whole(answer)


def _boxed_or_whole(answer: str | None) -> str | None:
    boxed = None if answer is None else last_boxed(answer)
    return answer if boxed is None else boxed


def _skip_white_space(text: str, at: int) -> int:
    match = _WHITE_SPACE.match(text, at)
    return at if match is None else match.end()


def explicit_answer(text: str) -> str | None:
    """Return the answer that may be credited: the final answer line, else the last box, else None.

    Both are looked for in the text without thinking.
    """
    visible = strip_think(text)
    answer = final_answer_line(visible)
    return last_boxed(visible) if answer is None else answer


def displayed_prediction(text: str) -> str:
    """Return what a results table shows as the prediction; never credited.

    The explicit answer, else the last number of the text without thinking and commas, else its last line
    (here any of `str.splitlines`' line ends counts), else the empty string.
    """
    answer = explicit_answer(text)
    if answer is not None:
        return answer
    visible = strip_think(text)
    number: str | None = None
    for found in _NUMBER.finditer(visible.replace(",", "")):
        number = found.group()
    if number is not None:
        return number
    return visible.splitlines()[-1].strip() if visible else ""


def normalize_answer(answer: str) -> str:
    r"""Return the form in which two answers are compared.

    In this order: strip; `\boxed{x}` becomes x where x is not empty and holds no brace (one pass); outer
    braces are peeled; commas and white space go; full stops go at both ends (so `.5` is `5`); lower case.
    """
    unboxed = _FLAT_BOX.sub(r"\1", answer.strip())
    bare = "".join(_peel_braces(unboxed).replace(",", "").split())
    return bare.strip(".").lower()


def _peel_braces(text: str) -> str:
    """Peel pairs of outer braces, with the white space inside them, by index: slices would be quadratic.

    Only both ends are looked at, not whether they belong together: `{a}{b}` becomes `a}{b`.
    """
    start, end = 0, len(text)
    while end - start >= 2 and text[start] == "{" and text[end - 1] == "}":  # two ends, not one twice
        start, end = start + 1, end - 1
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
    return text[start:end]
