"""Repetitions that take turns, so that a busy machine slows all sides alike."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch


def alternate(sides: Sequence[Callable[[], float]], repetitions: int) -> list[list[float]]:
    """The seconds of every side. In a repetition the sides run one after another; a side times itself."""
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(repetitions):
        for side, record in zip(sides, seconds, strict=True):
            record.append(side())
    return seconds


def paired_ratios(slow: Sequence[float], fast: Sequence[float]) -> list[float]:
    """Slow over fast, repetition by repetition."""
    return [above / below for above, below in zip(slow, fast, strict=True)]


def median(values: Sequence[float]) -> float:
    """The median."""
    return float(statistics.median(values))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one CPU thread; on a shared machine several threads would also measure other people's work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
