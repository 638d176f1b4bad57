"""Counters of what a round had to leave out or repair."""

import statistics
from collections.abc import Iterator, Sequence

from fedblade.report._blocks import Block, Cell, Details, Paragraph, TableBlock, columns
from fedblade.results import STATE_COUNTERS, Group

_COUNTER = "count_"
_NOTE = (
    "Things a run counts so that they do not pass unnoticed, such as features that never change within a batch or "
    "clients without samples. They are signs to look at, not errors. What happens is added up over rounds and seeds; "
    "how things are is given for the last round, as a mean over seeds, with the most in any round where that is more."
)


def health(groups: Sequence[Group]) -> list[Block]:
    """The counters with a value other than zero, nothing where there are none."""
    keys = sorted({key for group in groups for run in group.runs for r in run.history for key in r.numbers})
    rows = []
    for key in (key for key in keys if key.startswith(_COUNTER)):
        counted = [list(_counted(group, key)) for group in groups]
        if any(value for runs in counted for values in runs for value in values):
            when = "last round" if key in STATE_COUNTERS else "all rounds"
            name = f"{key.removeprefix(_COUNTER).replace('_', ' ')}, {when}"
            rows.append([Cell(name), *(_state(runs) if key in STATE_COUNTERS else _events(runs) for runs in counted)])
    if not rows:
        return []
    headings = ["counter", *(group.label for group in groups)]
    listed = TableBlock("Health counters", columns(headings, ("counter",)), rows)
    return [Details("Health counters that are not zero", [listed, Paragraph(_NOTE)])]


def _counted(group: Group, key: str) -> Iterator[list[float]]:
    """The values over rounds, of every run that has values."""
    per_run = ([r.numbers[key] for r in run.history if key in r.numbers] for run in group.runs)
    return (values for values in per_run if values)


def _events(runs: Sequence[Sequence[float]]) -> Cell:
    return Cell(f"{sum(map(sum, runs)):,.0f}")


def _state(runs: Sequence[Sequence[float]]) -> Cell:
    """The last value, and the largest where that is more."""
    if not runs:
        return Cell("0")
    last, most = statistics.fmean(values[-1] for values in runs), max(map(max, runs))
    return Cell(f"{last:,.1f}".removesuffix(".0"), small=f"at most {most:,.0f}" if most > last else "")
