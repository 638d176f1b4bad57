"""Numbers and lists as text."""

MISSING = "–"
MOST_NAMED = 4
"""Up to this many methods are named one by one in a sentence."""

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


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
    unit, unit_bytes = size_unit(num_bytes)
    return f"{num_bytes / unit_bytes:,.3g} {unit}"


def size_unit(num_bytes: float) -> tuple[str, float]:
    """The decimal unit in which this many bytes are printed, and how many bytes it has."""
    return next((unit for unit in _UNITS if num_bytes >= 0.9995 * unit[1]), ("B", 1.0))
