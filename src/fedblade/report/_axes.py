"""Axes in pixels, with ticks at round values."""

import math
from dataclasses import dataclass

_MOST_POWERS = 6
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e4
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class PixelAxis:
    """Maps values to pixels from `start` to `end`; `ticks` are the values that are printed."""

    low: float
    high: float
    ticks: tuple[float, ...]
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Pixel of a value; values outside the axis are moved to its edge."""
        value = min(max(value, self.low), self.high)
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return self.start + share * (self.end - self.start)

    @property
    def for_script(self) -> str:
        """The mapping in one line, for the script that follows the pointer: pixels, values, and 1 for logarithmic."""
        return f"{self.start:.1f} {self.end:.1f} {self.low:.9g} {self.high:.9g} {int(self.log)}"

    def print_tick(self, tick: float) -> str:
        """A tick in print; as a power of ten where the axis has very large or very small values."""
        if not self.log or (self.low >= _PLAIN_LOW and self.high <= _PLAIN_HIGH):
            return f"{tick:g}"
        return "10" + str(round(math.log10(tick))).translate(_SUPERSCRIPTS)


def linear_axis(
    low: float, high: float, *, start: float, end: float, ticks: int = 5, whole: bool = False, snap: bool = True
) -> PixelAxis:
    """An axis with round ticks; `snap` widens it to the outer ticks, `whole` keeps ticks to integers."""
    if high - low < 1e-9 * max(1.0, abs(high)):
        margin = max(0.5, abs(high) * 0.05)
        low, high = low - margin, high + margin
    step = _round_step((high - low) / ticks)
    step = max(1.0, round(step)) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    marks = [round(index * step, 10) for index in range(first, last + 1)]
    if snap:
        low, high = marks[0], marks[-1]
    return PixelAxis(low, high, tuple(mark for mark in marks if low <= mark <= high), start, end)


def log_axis(low: float, high: float, *, start: float, end: float) -> PixelAxis:
    """A logarithmic axis with ticks at powers of ten; it ends at ticks only where every power has one."""
    first = math.floor(math.log10(low))
    last = max(first + 1, math.ceil(math.log10(high)))
    if last - first <= _MOST_POWERS:
        ticks = tuple(10.0**power for power in range(first, last + 1))
        return PixelAxis(ticks[0], ticks[-1], ticks, start, end, log=True)
    step = math.ceil((last - first) / _MOST_POWERS)
    powers = range(step * math.ceil(math.log10(low) / step), math.floor(math.log10(high)) + 1, step)
    return PixelAxis(low, high, tuple(10.0**power for power in powers), start, end, log=True)


def _round_step(raw: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if raw <= power * factor * (1 + 1e-9))
