"""Numbers and lists as text."""

MISSING = "–"
MOST_NAMED = 4
"""Up to this many methods are named one by one in a sentence."""


def percent(value: float | None) -> str:
    """A number with two decimals, or a dash for None."""
    return MISSING if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds, with fewer decimals the more there are."""
    if seconds is None:
        return MISSING
    if seconds < 100:
        return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.2f}"
    return f"{seconds:,.0f}"


def size(num_bytes: float | None) -> str:
    """Bytes in decimal units."""
    if num_bytes is None:
        return MISSING
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.3g} TB"
