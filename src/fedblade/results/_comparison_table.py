"""The comparison of runs as a table: for the terminal, for the page and for a paper, and in full as CSV."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from fedblade import protocols
from fedblade.results._comparison import ComparisonRow
from fedblade.results._format import MISSING, percent
from fedblade.results._sentences import last_rounds, last_rounds_heading, over_last_rounds, samples_of_personal_models
from fedblade.results._table import Table, TableCell, TableColumn, csv_text, latex_table, markdown_table

Medium = Literal["terminal", "page", "paper"]
Entry = tuple[str, Callable[[ComparisonRow], TableCell]]
"""The heading of a column, and its cell of a row."""

_KILOBYTE, _MEGABYTE = 1e3, 1e6
DAGGER = "†"
CALIBRATED_NOTE = f"{DAGGER} after calibration at the end of the run"
DOUBLE_DAGGER = "‡"
CLAIMED_NOTE = (
    f"{DOUBLE_DAGGER} claimed: the nodes have measured this accuracy by themselves, and nobody has checked it"
)


def comparison_table(rows: Sequence[ComparisonRow], medium: Medium) -> Table:
    """The rows of a comparison with the columns that fit a medium, and the notes that explain them."""
    columns, notes = {
        "terminal": (_terminal_columns, _terminal_notes),
        "page": (_page_columns, _page_notes),
        "paper": (_paper_columns, _paper_notes),
    }[medium]
    entries = columns(rows)
    headings = [TableColumn(heading, numeric=heading != "method") for heading, _ in entries]
    return Table(headings, [[cell(row) for _, cell in entries] for row in rows], notes(rows))


def markdown(rows: Sequence[ComparisonRow]) -> str:
    """A Markdown table with its caption below: best bold, second underlined."""
    table = comparison_table(rows, "paper")
    return f"{markdown_table(table)}\n*{_caption(table)}*\n"


def latex(rows: Sequence[ComparisonRow]) -> str:
    """A LaTeX table for the package booktabs: best bold, second underlined."""
    table = comparison_table(rows, "paper")
    return latex_table(table, _caption(table))


def comma_separated(rows: Sequence[ComparisonRow]) -> str:
    """A CSV file with every number of the comparison in full; numbers per seed share a cell, parted by spaces."""
    names = [field.name for field in dataclasses.fields(ComparisonRow)]
    in_words = ({"rounds_to": row.rounds_to_seeds_text, "flags": "; ".join(row.flags)} for row in rows)
    lines = (vars(row) | words for row, words in zip(rows, in_words, strict=True))
    return csv_text(names, ([_plain(line[name]) for name in names] for line in lines))


def _terminal_columns(rows: Sequence[ComparisonRow]) -> list[Entry]:
    """A terminal of 80 columns has room for personal models or for costs; the page has both."""
    costs: list[Entry] = [
        ("s/round", lambda row: TableCell(percent(row.seconds_per_round))),
        ("kB up", lambda row: TableCell(_in_units(row.bytes_up_per_round, _KILOBYTE, 0))),
    ]
    return [
        ("method", lambda row: TableCell(row.label)),
        ("runs", _finished_of_all),
        (last_rounds_heading(_evaluations(rows)), _last),
        ("final", lambda row: _accuracy(row.final_mean, row.final_std, mark=_mark(row))),
        (f"to {rows[0].threshold:g} %", lambda row: TableCell(row.rounds_to_text)),
        *([("personal", _personal)] if _has_personal(rows) else costs),
    ]


def _page_columns(rows: Sequence[ComparisonRow]) -> list[Entry]:
    """Few columns, so that they have room beside the chart: the page has tables of costs and of single runs as well."""
    seeds, *accuracies = _accuracy_columns(rows)
    return [("method", lambda row: TableCell(row.label, tags=_tags(row))), *accuracies, seeds]


def _paper_columns(rows: Sequence[ComparisonRow]) -> list[Entry]:
    return [
        ("method", lambda row: TableCell(row.label)),
        *_accuracy_columns(rows),
        ("seconds per round", lambda row: TableCell(percent(row.seconds_per_round))),
        ("MB up per round", lambda row: TableCell(_in_units(row.bytes_up_per_round, _MEGABYTE, 2))),
        ("MB down per round", lambda row: TableCell(_in_units(row.bytes_down_per_round, _MEGABYTE, 2))),
    ]


def _accuracy_columns(rows: Sequence[ComparisonRow]) -> list[Entry]:
    """Seeds, accuracies and rounds to the threshold, as page and paper show them."""
    final: Entry = (
        "final round, %",
        lambda row: _accuracy(row.final_mean, row.final_std, rank=row.final_rank, mark=_mark(row)),
    )
    return [
        ("seeds", lambda row: TableCell(str(len(row.seeds)))),
        (f"{last_rounds(_evaluations(rows))}, %", _last),
        final,
        *([("personal models, %", _personal)] if _has_personal(rows) else []),
        (f"rounds to {rows[0].threshold:g} %", lambda row: TableCell(row.rounds_to_text)),
    ]


def _last(row: ComparisonRow) -> TableCell:
    """The accuracy that methods are ranked by."""
    return _accuracy(row.ranked_mean, row.ranked_std, rank=row.rank, mark=_mark(row))


def _personal(row: ComparisonRow) -> TableCell:
    return _accuracy(row.own_mean, row.own_std, mark=DOUBLE_DAGGER if row.own_claimed else "")


def _finished_of_all(row: ComparisonRow) -> TableCell:
    return TableCell(f"{row.finished}/{row.runs}" + (f", {row.failed} failed" if row.failed else ""))


def _accuracy(mean: float | None, std: float | None, *, rank: int | None = None, mark: str = "") -> TableCell:
    return TableCell(percent(mean), "" if std is None else f"± {percent(std)}", mark, rank=rank)


def _tags(row: ComparisonRow) -> tuple[tuple[str, bool], ...]:
    """Whose accuracy it is and on which samples, whether there are warnings, and how many runs are missing."""
    tags = [("personal models", False)] if row.accuracy_of == "personal" else []
    tags += [("validation", False)] if row.on_validation else []
    if row.flags:
        tags.append(("watch out", True))
    if row.finished < row.runs:
        ended = row.finished + row.failed == row.runs
        state = f"{row.failed} of {row.runs} failed" if ended else f"{row.finished} of {row.runs} finished"
        tags.append((state, True))
    return tuple(tags)


def _terminal_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    spread = ", mean ± std over seeds (n−1)" if any(row.runs > 1 for row in rows) else ""
    best = ", * best" if any(row.rank == 1 for row in rows) else ""
    samples = _measured_on(rows)
    return [
        f"accuracy in %{spread}{best}; to {rows[0].threshold:g} %: rounds needed",
        *([CALIBRATED_NOTE] if _any_calibrated(rows) else []),
        *([CLAIMED_NOTE] if _any_claimed(rows) else []),
        *([f"personal: personal models on {samples}"] if samples else []),
        *(f"watch out, {row.label}: {flag}" for row in rows for flag in row.flags),
    ]


def _page_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    several, last = any(len(row.seeds) > 1 for row in rows), over_last_rounds(_evaluations(rows))
    mean = "the test accuracy after" if "only" in last else "the mean of the test accuracies after"
    notes = [f"{last_rounds(_evaluations(rows)).capitalize()}: {mean} {last}."]
    if several:
        notes.append(f"Numbers are means ± the {protocols.DEVIATION}.")
    if _any_calibrated(rows):
        notes.append(f"{CALIBRATED_NOTE}, which no round measured; its rounds before that are not ranked.")
    if _any_claimed(rows):
        notes.append(f"{CLAIMED_NOTE}.")
    if samples := _measured_on(rows):
        notes.append(f"Personal models: the mean over clients of their personal models' accuracy on {samples}.")
    if any(row.rank for row in rows):
        notes.append("1st (bold) and 2nd (underlined) mark the highest means among groups of one setting.")
    notes.append("Rounds count from 1.")
    if any(row.rounds_to_mean is None for row in rows):
        notes.append("T+ means that not every seed reached the level within T rounds.")
    return notes


def _paper_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    several, samples = any(len(row.seeds) > 1 for row in rows), _measured_on(rows)
    return [
        "Test accuracy in percent" + (f", mean ± {protocols.DEVIATION}" if several else ""),
        *([f"personal models on {samples}"] if samples else []),
        *(["best bold, second underlined"] if any(row.rank for row in rows) else []),
        *([CALIBRATED_NOTE] if _any_calibrated(rows) else []),
        *([CLAIMED_NOTE] if _any_claimed(rows) else []),
    ]


def _caption(table: Table) -> str:
    return "; ".join(table.notes) + "."


def _measured_on(rows: Sequence[ComparisonRow]) -> str:
    """What personal models were measured on, empty where none was."""
    measured = [(row.label, row.tests_apart) for row in rows if row.own_mean is not None]
    return samples_of_personal_models(measured) if measured else ""


def _has_personal(rows: Sequence[ComparisonRow]) -> bool:
    return any(row.own_mean is not None for row in rows)


def _any_calibrated(rows: Sequence[ComparisonRow]) -> bool:
    return any(row.calibrated for row in rows)


def _any_claimed(rows: Sequence[ComparisonRow]) -> bool:
    return any(row.claimed or (row.own_claimed and row.own_mean is not None) for row in rows)


def _evaluations(rows: Sequence[ComparisonRow]) -> list[tuple[int, int]]:
    return [count for row in rows for count in row.evaluations]


def _mark(row: ComparisonRow) -> str:
    return (DAGGER if row.calibrated else "") + (DOUBLE_DAGGER if row.claimed else "")


def _in_units(num_bytes: float | None, unit: float, decimals: int) -> str:
    return MISSING if num_bytes is None else f"{num_bytes / unit:.{decimals}f}"


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return " ".join("" if entry is None else str(entry) for entry in value)
    return "" if value is None else value
