"""Which rounds the mean over the last ten is over, in words: there may be fewer."""

from collections.abc import Iterable, Sequence

MOST = 10
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

Counts = Iterable[tuple[int, int]]
"""Evaluated rounds and all rounds of each run."""


def last_rounds(counts: Counts) -> str:
    """`last 10 rounds`, `all 8 rounds`, `all 3 evaluated rounds`, `only round` or `last 10 rounds at most`."""
    known = _known(counts)
    kind = "evaluated round" if any(some < done for some, done in known) else "round"
    fewest, most = _range(known)
    if fewest == MOST:
        return f"last {MOST} {kind}s"
    if fewest < most:
        return f"last {MOST} {kind}s at most"
    return f"only {kind}" if most == 1 else f"all {most} {kind}s"


def over_last(counts: Counts) -> str:
    """The same in a sentence: `the last 10 rounds`, `all 8 rounds`."""
    said = last_rounds(counts)
    return said if said.startswith("all") else f"the {said}"


def last_heading(counts: Counts) -> str:
    """The same in a narrow column: `last 10`, `all 8`, `only`, `last ≤10`."""
    fewest, most = _range(_known(counts))
    if fewest == MOST:
        return f"last {MOST}"
    if fewest < most:
        return f"last ≤{MOST}"
    return "only" if most == 1 else f"all {most}"


def last_word(evaluated: int) -> str:
    """The same of one run: `last ten`, `all eight`."""
    return "last ten" if evaluated >= MOST else f"all {_WORDS[evaluated - 1]}"


def _known(counts: Counts) -> list[tuple[int, int]]:
    return [(some, done) for some, done in counts if some]


def _range(known: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The fewest and the most rounds that a mean is over; ten where nothing was evaluated yet."""
    used = [min(some, MOST) for some, _ in known] or [MOST]
    return min(used), max(used)
