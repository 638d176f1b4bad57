"""The tables of FedBlade's other forms: what validation data said, and the test set with several seeds."""

import statistics
from collections.abc import Mapping, Sequence

import method_tables
from cells import NONE, table_of, with_spread, within
from kept import Method, check_comparable

ByLevel = Mapping[str, Sequence[Method]]
"""The methods of a grid by the α of their split."""


def choice_table(by_level: ByLevel) -> str:
    """The validation accuracy of every form by α, and the mean where all are run."""
    for level, methods in by_level.items():
        check_comparable(methods, f"choice, α = {level}")
    rows = []
    for same in zip(*by_level.values(), strict=True):
        found = [each.mean for each in same if each.runs]
        cells = [f"{each.mean:.2f}" if each.runs else "not run" for each in same]
        rows.append([same[0].label, *cells, f"{statistics.fmean(found):.2f}" if len(found) == len(same) else NONE])
    return table_of(["form", *(f"α = {level}" for level in by_level), "mean"], rows)


def confirmed_table(by_level: ByLevel) -> str:
    """The test accuracy of the chosen form beside those that it has to beat, by α."""
    rows = []
    for level, methods in by_level.items():
        check_comparable(methods, f"confirmed, α = {level}")
        for each in methods:
            name, seeds = f"{each.label}, α = {level}", f"{len(each.runs)} of {each.planned}"
            if not each.runs:
                rows.append([name, seeds, "not run", NONE, NONE])
                continue
            late, last = ([getattr(run, what) for run in each.runs] for what in ("accuracy", "final"))
            rows.append([name, seeds, with_spread(late), within(each.runs), with_spread(last)])
    return table_of(["method", "seeds", "last 5 measured", "moves by", "final round"], rows)


def difference_table(by_level: ByLevel) -> str:
    """The last method of a grid less each of the others, on the seeds that both have, by α."""
    rows = []
    for level, (*others, last) in by_level.items():
        for other in others:
            name, *numbers = method_tables.contrast(last, other)
            rows.append([f"{name}, α = {level}", *numbers])
    return table_of(method_tables.CONTRAST_HEADER, rows)
