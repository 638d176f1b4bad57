"""Rounds the numbers in lists to the digits that are stored."""

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_OF_NUMBERS = {float, type(None)}
_DIGITS = 6
"""Significant digits of numbers in lists."""
_EXACT_POWERS = 22
"""Powers of ten up to this one are exact in float64."""
_NEAR_TIE = 1e-6
"""Scaled numbers this near to the middle between two whole numbers are rounded in decimal."""


def rounded(value: Any) -> Any:
    """Floats in nested lists, rounded to six significant digits. NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return _rounded_list(value)
    return _rounded_float(value) if isinstance(value, float) else value


def _rounded_list(values: Sequence[Any]) -> list[Any]:
    """A list of floats and None, or a table of them, is rounded at once, every other list entry by entry."""
    kinds = set(map(type, values))
    if kinds <= {int}:
        return list(values)
    if kinds == {list} and set(map(type, flat := list(chain.from_iterable(values)))) <= _OF_NUMBERS:
        entries = iter(_rounded_list(flat))
        return [list(islice(entries, len(row))) for row in values]
    if not kinds <= _OF_NUMBERS:
        return [rounded(entry) for entry in values]
    numbers = _rounded_array(np.array(values, dtype=np.float64))
    plain: list[Any] = numbers.tolist()
    return plain if np.isfinite(numbers).all() else [entry if np.isfinite(entry) else None for entry in plain]


def _rounded_array(values: FloatArray) -> FloatArray:
    """The nearest numbers with six significant digits, the same as `_rounded_float` gives one by one."""
    with np.errstate(all="ignore"):
        shift = _DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        power = 10.0 ** np.abs(shift)
        scaled = np.where(shift >= 0, values * power, values / power)
        whole = np.rint(scaled)
        found: FloatArray = np.where(shift >= 0, whole / power, whole * power)
        sure = (np.abs(shift) <= _EXACT_POWERS) & (np.abs(np.abs(scaled - whole) - 0.5) > _NEAR_TIE)
    # The others are zeros, very small or large numbers, and numbers of which scaling may have hidden the side.
    unsure = np.isfinite(values) & ~sure
    found[unsure] = [_rounded_float(value) for value in values[unsure].tolist()]
    return np.where(np.isfinite(values), found, np.nan)


def _rounded_float(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None
