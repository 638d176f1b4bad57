"""Repetitions that take turns, so that a busy machine slows all sides alike."""

import statistics
from collections.abc import Callable, Sequence


def alternate(sides: Sequence[Callable[[], float]], repetitions: int) -> list[list[float]]:
    """What each side gives, one after another in every repetition; a side times itself and gives its seconds."""
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(repetitions):
        for side, record in zip(sides, found, strict=True):
            record.append(side())
    return found


def paired_ratios(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """Slow over fast, repetition by repetition."""
    return [above / below for above, below in zip(slow, fast, strict=True)]


def median(values: Sequence[float]) -> float:
    """The median."""
    return float(statistics.median(values))
