"""Lines of styled text that fit a given width."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.text import Text

from fedblade.charts.palette import COLOURS

# Of the two blues, this one can be read on dark and on light backgrounds.
BLUE, ORANGE, GREEN, RED = COLOURS[5], COLOURS[4], COLOURS[2], COLOURS[1]
MUTED, STRONG = "dim", "bold"
GAP = 2


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
