"""Counts and lists in sentences."""

from collections.abc import Sequence

_MOST_LISTED, _FIRST = 12, 3


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listing(names: Sequence[str], most: int | None = None) -> str:
    """`a`, `a and b`, `a, b and c`; of more than `most` names the first ones: `a, b and 5 more`."""
    if most is not None and len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def short_listing(names: Sequence[str]) -> str:
    """All names where there are at most twelve, otherwise the first three and how many more there are."""
    return listing(names, None if len(names) <= _MOST_LISTED else _FIRST)
