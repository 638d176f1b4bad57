"""Tables of shaded cells as few and short paths."""

from collections.abc import Sequence


def runs_of(levels: Sequence[int], columns: int) -> dict[int, str]:
    """Path data by level for cells of size 1, given row after row; cells of level 0 stay empty.

    Neighbours of one level in a row are one line as thick as a row, so that thousands of cells stay small.
    """
    runs: dict[int, list[str]] = {}
    for row in range(len(levels) // columns):
        line = levels[row * columns : (row + 1) * columns]
        column = 0
        while column < columns:
            level, start = line[column], column
            while column < columns and line[column] == level:
                column += 1
            if level:
                runs.setdefault(level, []).append(f"M{start} {row}.5h{column - start}")
    return {level: "".join(parts) for level, parts in sorted(runs.items())}
