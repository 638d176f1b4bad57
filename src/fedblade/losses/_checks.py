"""Checks of knobs: what was given, what was expected, what to do."""

import math

from fedblade.core.errors import Misconfigured, nearest


def check_choice(name: str, given: object, options: tuple[str, ...]) -> None:
    """Refuse a value that is not among the options; the message names the nearest option."""
    if given not in options:
        raise Misconfigured(f"unknown {name} {given!r}.{nearest(str(given), options)}")


def check_positive(name: str, given: float, example: float) -> None:
    """Refuse zero, negative numbers and NaN."""
    if not given > 0:
        raise Misconfigured(f"{name}={given!r} must be positive, e.g. {example}.")


def check_not_negative(name: str, given: float, example: float) -> None:
    """Refuse negative numbers, infinity and NaN."""
    if not 0 <= given < math.inf:
        raise Misconfigured(f"{name}={given!r}: expected a number from 0 on, such as {example}.")


def check_ddof(given: object, options: tuple[object, ...] = (0, 1)) -> None:
    """Refuse other degrees of freedom than those of the population and of the sample deviation."""
    if given not in options:
        raise Misconfigured(f"ddof={given!r} is not supported. Take 0 (population deviation) or 1 (sample deviation).")


def check_floor(floor: float) -> None:
    """Refuse a negative floor for class counts."""
    if not floor >= 0:
        raise Misconfigured(
            f"count floor {floor!r} is negative. Take 1 (absent classes have the count 1) or 0 (they are removed)."
        )
