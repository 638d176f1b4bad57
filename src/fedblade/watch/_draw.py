"""Draws curves and sparklines with characters, writes numbers and times, and makes lines of text fit a width."""

import math
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from statistics import fmean

from rich.text import Text

from fedblade.charts.palette import COLOURS

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille character, `[row][column]`."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_LEAST_RELATIVE_RISE, _LEAST_RISE = 1e-5, 1e-12
"""A smaller rise, as a share of the largest value or at all, is rounding; `number` does not show it either."""

# Of the two blues, this one can be read on dark and on light backgrounds.
BLUE, ORANGE, GREEN, RED = COLOURS[5], COLOURS[4], COLOURS[2], COLOURS[1]
MUTED, STRONG = "dim", "bold"
GAP = 2

Point = tuple[float, float]


def curve(points: Sequence[Point], last_x: float, width: int, height: int) -> list[str]:
    """A line through `points` in `height` rows of `width` braille characters.

    The horizontal axis goes from the first point to `last_x`, or to the last point if that is further; the vertical
    axis from the lowest to the highest value.
    """
    if not points:
        return [" " * width] * height
    columns, rows = 2 * width, 4 * height
    high, rise = max(y for _, y in points), _rise([y for _, y in points])
    first = points[0][0]
    span = max(last_x, points[-1][0]) - first

    def position(x: float, y: float) -> Point:
        across = (x - first) / span * (columns - 1) if span else 0.0
        # A curve without a rise runs through the middle.
        down = (high - y) / rise * (rows - 1) if rise else rows // 2
        return across, down

    characters = [[0] * width for _ in range(height)]
    corners = [position(x, y) for x, y in points]
    for start, end in zip(corners, [*corners[1:], corners[-1]], strict=True):
        for column, row in _dots_between(start, end):
            characters[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in line) for line in characters]


def _rise(values: Sequence[float]) -> float:
    """The difference of the highest and the lowest value, 0 where it is only rounding."""
    low, high = min(values), max(values)
    least = max(_LEAST_RELATIVE_RISE * max(abs(low), abs(high)), _LEAST_RISE)
    return high - low if high - low > least else 0.0


def _dots_between(start: Point, end: Point) -> list[tuple[int, int]]:
    """The dots of a line from `start` to `end`, both included."""
    steps = max(1, math.ceil(max(abs(end[0] - start[0]), abs(end[1] - start[1]))))
    shares = [step / steps for step in range(steps + 1)]
    return [
        (round(start[0] + share * (end[0] - start[0])), round(start[1] + share * (end[1] - start[1])))
        for share in shares
    ]


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of `values` in at most `width` blocks; a block shows the mean of as many values as any other."""
    count = min(width, len(values))
    bounds = [len(values) * block // count for block in range(count + 1)] if count else []
    means = [fmean(values[begin:end]) for begin, end in pairwise(bounds)]
    if not means:
        return ""
    low, rise = min(means), _rise(means)
    if not rise:
        return _BLOCKS[len(_BLOCKS) // 2 - 1] * count
    return "".join(_BLOCKS[min(int((value - low) / rise * len(_BLOCKS)), len(_BLOCKS) - 1)] for value in means)


def clock(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03` or `2 d 03:04`."""
    whole = int(seconds)
    minutes = f"{whole % _HOUR // _MINUTE:02d}:{whole % _MINUTE:02d}"
    if whole >= _DAY:
        return f"{whole // _DAY} d {whole % _DAY // _HOUR:02d}:{whole % _HOUR // _MINUTE:02d}"
    return f"{whole // _HOUR}:{minutes}" if whole >= _HOUR else minutes.removeprefix("0")


def number(value: float) -> str:
    """A number with four digits; a whole number below a million has all its digits."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:.4g}"


def terminal_safe(text: object) -> str:
    """Text from a file, without characters that would control the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in str(text))


def fit(line: Text, width: int) -> Text:
    """The line cut to `width`, with an ellipsis if something is missing."""
    cut = line.copy()
    cut.truncate(max(width, 1), overflow="ellipsis")
    return cut


def pair(left: Text, right: Text, width: int) -> Text:
    """One line with `right` at its right end; `left` is cut if there is no room for both."""
    right = fit(right, width)
    room = width - right.cell_len - GAP
    if room <= 0:
        return right
    left = fit(left, room)
    return Text.assemble(left, " " * (width - left.cell_len - right.cell_len), right)


def half(width: int) -> int:
    """The width of a block that shares the line with another one."""
    return (width - GAP) // 2


def beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two blocks of lines next to each other, both half as wide as `width`."""
    columns = half(width)
    lines = []
    for first, second in zip_longest(left, right, fillvalue=Text()):
        first, second = fit(first, columns), fit(second, columns)
        lines.append(Text.assemble(first, " " * (columns - first.cell_len + GAP), second))
    return lines
