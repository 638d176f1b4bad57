"""Lines of styled text that never exceed the width they are given."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.text import Text

# Okabe and Ito's colours, as in the report; of the blues the one that reads on dark and on light backgrounds.
BLUE, ORANGE, GREEN, RED = "#56b4e9", "#e69f00", "#009e73", "#d55e00"
MUTED, STRONG = "dim", "bold"
GAP = 2


def fit(line: Text, width: int) -> Text:
    """The line cut to `width`, with an ellipsis where something is missing."""
    cut = line.copy()
    cut.truncate(max(width, 1), overflow="ellipsis")
    return cut


def pair(left: Text, right: Text, width: int) -> Text:
    """One line with `right` at its right edge; `left` gives way."""
    right = fit(right, width)
    room = width - right.cell_len - GAP
    if room <= 0:
        return right
    left = fit(left, room)
    return Text.assemble(left, " " * (width - left.cell_len - right.cell_len), right)


def half(width: int) -> int:
    """The width of one of two blocks next to each other."""
    return (width - GAP) // 2


def beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two blocks of lines next to each other, each in its half of `width`."""
    across = half(width)
    lines = []
    for first, second in zip_longest(left, right, fillvalue=Text()):
        first, second = fit(first, across), fit(second, across)
        lines.append(Text.assemble(first, " " * (across - first.cell_len + GAP), second))
    return lines
