"""How numbers become the cells of a table, and a table becomes text."""

import csv
import io
import statistics
from collections.abc import Sequence

from kept import Kept

from fedblade.results import Table, markdown_table

NONE = "–"
"""The cell of a number that there is not."""


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text."""
    return markdown_table(Table.of_texts(header, rows, header[1:])).rstrip("\n")


def comma_separated(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A CSV file as text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def signed(number: float) -> str:
    """A difference in points."""
    return f"{number:+.2f}".replace("-", "−")


def with_spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean over seeds, with the deviation if there are several."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def within(runs: Sequence[Kept]) -> str:
    """By how much the accuracy moves within the last rounds of a run, the mean over runs."""
    return f"{statistics.fmean(statistics.stdev(run.last) for run in runs):.1f}"
