"""Numbers as results files show them: rounded, and None where there is nothing to tell."""

_DIGITS = 4
_SECONDS_DIGITS = 3


def ratio(part: float, whole: float) -> float | None:
    """Return a share or a rate; None where `whole` is nothing."""
    return round(part / whole, _DIGITS) if whole > 0 else None


def seconds(value: float | None) -> float | None:
    """Return seconds to the millisecond."""
    return None if value is None else round(value, _SECONDS_DIGITS)
