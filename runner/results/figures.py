"""Numbers as results files show them: rounded, and None where there is nothing to tell."""

from typing import Any

_DIGITS = 4
_SIGNIFICANT_DIGITS = 10
"""Of what statistics give: another processor's last bits are not a difference."""
_SECONDS_DIGITS = 3


def ratio(part: float, whole: float) -> float | None:
    """Return a share or a rate; None where `whole` is nothing."""
    return round(part / whole, _DIGITS) if whole > 0 else None


def seconds(value: float | None) -> float | None:
    """Return seconds to the millisecond."""
    return None if value is None else round(value, _SECONDS_DIGITS)


def significant(document: Any) -> Any:  # noqa: ANN401 - any JSON value to one of the same kind
    """Return a JSON-ready document with its numbers cut to what is the same on every machine."""
    if isinstance(document, float):
        return float(f"{document:.{_SIGNIFICANT_DIGITS}g}")
    if isinstance(document, dict):
        return {key: significant(value) for key, value in document.items()}
    return [significant(value) for value in document] if isinstance(document, list) else document
