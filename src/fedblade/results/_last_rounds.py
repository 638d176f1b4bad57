"""Says in words which rounds the mean over the last ten rounds is over: there may be fewer."""

from collections.abc import Iterable, Sequence

MOST = 10
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

Counts = Iterable[tuple[int, int]]
"""Pairs of the number of evaluated rounds and the number of all rounds, one per run."""


def last_rounds(counts: Counts) -> str:
    """`last 10 rounds`, `all 8 rounds`, `all 3 evaluated rounds`, `only round` or `last 10 rounds at most`."""
    evaluated = _evaluated(counts)
    kind = "evaluated round" if any(count < done for count, done in evaluated) else "round"
    fewest, most = _range(evaluated)
    if fewest == MOST:
        return f"last {MOST} {kind}s"
    if fewest < most:
        return f"last {MOST} {kind}s at most"
    return f"only {kind}" if most == 1 else f"all {most} {kind}s"


def over_last_rounds(counts: Counts) -> str:
    """The rounds in a sentence: `the last 10 rounds`, `all 8 rounds`."""
    words = last_rounds(counts)
    return words if words.startswith("all") else f"the {words}"


def last_rounds_heading(counts: Counts) -> str:
    """The rounds in a narrow column: `last 10`, `all 8`, `only`, `last ≤10`."""
    fewest, most = _range(_evaluated(counts))
    if fewest == MOST:
        return f"last {MOST}"
    if fewest < most:
        return f"last ≤{MOST}"
    return "only" if most == 1 else f"all {most}"


def last_rounds_of_run(evaluated: int) -> str:
    """The rounds of one run: `last ten`, `all eight`."""
    return "last ten" if evaluated >= MOST else f"all {_WORDS[evaluated - 1]}"


def _evaluated(counts: Counts) -> list[tuple[int, int]]:
    """The counts of the runs with an evaluated round."""
    return [(count, done) for count, done in counts if count]


def _range(evaluated: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The fewest and the most rounds that a mean is over; ten where nothing was evaluated yet."""
    used = [min(count, MOST) for count, _ in evaluated] or [MOST]
    return min(used), max(used)
