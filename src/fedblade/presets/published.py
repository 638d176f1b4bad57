"""Published numbers, and the cells of a grid that they belong to."""

import csv
import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable

from fedblade.config.settings import LEVELS, lookup, setting, show
from fedblade.core.errors import Misconfigured, nearest
from fedblade.presets.catalogue import GridPreset
from fedblade.presets.grid import Cell
from fedblade.presets.names import method_in_papers, names_in_papers

COLUMNS = ("dataset", "partition", "level", "clients", "participants", "model", "method")
"""Columns of published results that say which cell a number belongs to."""

IN_COLUMNS = {"dataset", "partition", "model", "method", "population"}
IN_COLUMNS |= {
    "federation.num_clients",
    "federation.clients_per_round",
    *(f"partition.{key}" for key in LEVELS.values()),
}
"""Axes of a grid that follow from columns of published results."""


@dataclass(frozen=True)
class Published:
    """A published number: the mean (None if the paper has none), the deviation, and remarks."""

    columns: Mapping[str, str]
    metric: str
    mean: float | None
    std: float | None
    notes: str

    @property
    def text(self) -> str:
        """The number as the paper prints it, such as `61.2 ± 0.5`, `200+` or `<0.9`."""
        if self.mean is None:
            return "failed" if "Failed" in self.notes else "–"
        printed = f"{self.mean:g}" if self.std is None else f"{self.mean:g} ± {self.std:g}"
        return f"{printed}+" if "censored" in self.notes else f"<{printed}" if "upper bound" in self.notes else printed

    @property
    def bounded(self) -> bool:
        """Whether the number is a bound, which has no difference to ours."""
        return "censored" in self.notes or "upper bound" in self.notes


@dataclass(frozen=True)
class Line:
    """One line of a paper's table: a metric of a cell, or its mean over cells that the paper averages.

    `extra` has variants and axes that are no columns of published results.
    """

    columns: Mapping[str, str]
    extra: Mapping[str, str]
    metric: str
    measure: str
    cells: tuple[Cell, ...]
    published: Published | None

    @property
    def facts(self) -> dict[str, str]:
        """Everything that `--where` can choose a line by."""
        return {**self.columns, **self.extra, "metric": self.metric}


def columns_of(cell: Cell, labels: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The columns of a cell in published results."""
    config = cell.config
    partition = str(lookup(config, "partition"))
    knob = lookup(config, f"partition.{LEVELS[partition]}") if partition in LEVELS else None
    return {
        "dataset": _name_in_papers("dataset", str(lookup(config, "dataset"))),
        "partition": partition,
        "level": "" if knob is None else show(float(knob)),
        "clients": show(setting(config, "federation.num_clients")),
        "participants": show(setting(config, "federation.clients_per_round")),
        "model": _name_in_papers("model", str(lookup(config, "model"))),
        "method": cell.label or method_in_papers(str(lookup(config, "method"))),
        **labels.get(partition, {}),
        **{key: value for key, value in cell.columns.items() if key in COLUMNS},
    }


def lines_of(preset: GridPreset) -> list[Line]:
    """The lines of a grid's table, with the published numbers that belong to them."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in preset.cells:
        columns = columns_of(cell, preset.labels)
        extra = [f"{axis}={value}" for axis, value in _extra(cell).items()]
        groups.setdefault((*columns.values(), *extra), []).append(cell)
    rows = published_rows(preset)
    lines: list[Line] = []
    for cells in groups.values():
        columns, first = columns_of(cells[0], preset.labels), cells[0]
        for metric, measure in first.measures.items():
            # A table of measures has a line for every domain of a test set; the level names the domain.
            by_level = measure if isinstance(measure, Mapping) else {columns["level"]: measure}
            for level, how in by_level.items():
                place = {**columns, "level": level}
                notes = first.columns.get("notes")
                number = next((row for row in rows if _belongs(row, place, metric, notes)), None)
                lines.append(Line(place, _extra(first), metric, how, tuple(cells), number))
    return lines


def published_rows(preset: GridPreset) -> list[Published]:
    """The published numbers of a grid's tables, in the order of `tables`."""
    if preset.results is None:
        return []
    rows = [row for row in _results(preset.results) if row[0] == preset.paper and row[1] in preset.tables]
    return [published for _, _, published in sorted(rows, key=lambda row: preset.tables.index(row[1]))]


def select(lines: Sequence[Line], where: Sequence[str]) -> list[Line]:
    """The lines that `where` chooses by a list of `column=value`; a column given twice may have either value.

    Columns are those of the published results, the keys of the grid and its variants. A variant that is not chosen has
    its default.
    """
    wanted: dict[str, list[str]] = {}
    for choice in where:
        column, equals, value = choice.partition("=")
        if not equals:
            raise Misconfigured(f"--where '{choice}' is not a choice; expected column=value, such as level=0.05.")
        wanted.setdefault(_full_name(column.strip(), lines), []).append(value.strip())
    chosen = [line for line in lines if line.cells[0].unusual <= wanted.keys()]
    for column, values in wanted.items():
        fitting = {id(line) for value in values for line in _lines_with(lines, column, value)}
        chosen = [line for line in chosen if id(line) in fitting]
    if not chosen:
        raise Misconfigured(f"no cell has {' and '.join(where)} together. Leave one of them out.")
    return chosen


def only_cell(preset: GridPreset, where: Sequence[str], source: str) -> Cell:
    """The one cell that `where` chooses, or an error that says how to choose; `source` is the preset in the command."""
    lines = select(lines_of(preset), where)
    cells = list({id(cell): cell for line in lines for cell in line.cells}.values())
    if len(cells) == 1:
        return cells[0]
    facts: dict[str, dict[str, None]] = {}
    for line in lines:
        for column, value in line.facts.items():
            facts.setdefault(column, {})[value] = None
    open_ = {column: list(values) for column, values in facts.items() if len(values) > 1 and column != "metric"}
    column, values = next(iter(open_.items()), ("seed", []))
    example = f"--where {shlex.quote(f'{column}={values[0]}')}" if values else ""
    raise Misconfigured(
        f"'{source}' is a grid and {len(cells)} of its cells fit. Choose one by {', '.join(open_)}, "
        f"for example {example}; `fedblade reproduce {shlex.quote(source)} --dry-run` lists all."
    )


def _name_in_papers(kind: str, name: str) -> str:
    return str(names_in_papers()[kind].get(name, name))


def _extra(cell: Cell) -> dict[str, str]:
    """What tells cells with the same columns apart: variants, and other axes of the grid or else the remark."""
    axes = {axis: value for axis, value in cell.axes.items() if axis not in IN_COLUMNS}
    return {**cell.variants, **(axes or {key: value for key, value in cell.columns.items() if key == "notes"})}


def _belongs(row: Published, columns: Mapping[str, str], metric: str, notes: str | None) -> bool:
    """Whether a published number belongs to a cell; a column that the paper leaves empty fits every cell.

    A metric may have a remark in brackets, for two ways to measure one published number.
    """
    if row.metric != metric.partition(" (")[0] or any(row.columns[c] not in ("", columns[c]) for c in COLUMNS):
        return False
    return notes is None or notes in (part.strip() for part in row.notes.split(";"))


def _full_name(given: str, lines: Sequence[Line]) -> str:
    known = dict.fromkeys(column for line in lines for column in line.facts)
    short = {column.rpartition(".")[2]: column for column in known}
    if given in known or given in short:
        return given if given in known else short[given]
    variants = [word for word in known if word in lines[0].cells[0].variants]
    raise Misconfigured(f"unknown column '{given}' in --where.{nearest(given, (*known, *short), variants)}")


def _lines_with(lines: Sequence[Line], column: str, value: str) -> list[Line]:
    """The lines with this text in a column, or else with an equal number or spelling, or else with this part's name."""
    conditions: tuple[Callable[[Line], bool], ...] = (
        lambda line: line.facts.get(column) == value,
        lambda line: _equal(line.facts.get(column, ""), value),
        lambda line: any(_equal(name, value) for name in _registered(line, column)),
    )
    for condition in conditions:
        if fitting := [line for line in lines if condition(line)]:
            return fitting
    options = {line.facts[column] for line in lines if column in line.facts}
    raise Misconfigured(f"no cell has {column} = '{value}'.{nearest(value, options)}")


def _registered(line: Line, column: str) -> set[str]:
    """The library's names for what is in a column. A method with a label is found by its label only."""
    if column not in ("dataset", "model", "method"):
        return set()
    named = (cell for cell in line.cells if column != "method" or not (cell.label or "method" in cell.columns))
    return {str(lookup(cell.config, column)) for cell in named}


def _equal(known: str, given: str) -> bool:
    if known.casefold() == given.casefold():
        return True
    try:
        return float(known) == float(given)
    except ValueError:
        return False


def _results(source: Traversable) -> list[tuple[str, str, Published]]:
    """(paper, table, number) for every published number of a file."""
    try:
        return _parse_results(source.read_text(encoding="utf-8"))
    except (OSError, KeyError, ValueError) as error:
        raise Misconfigured(
            f"'{source}' cannot be read as published results ({error!r}). It needs the columns paper, table, "
            f"{', '.join(COLUMNS)}, metric, mean, std, notes."
        ) from error


@cache
def _parse_results(text: str) -> list[tuple[str, str, Published]]:
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        columns = {column: row[column] for column in COLUMNS}
        mean, std = (float(row[key]) if row[key] else None for key in ("mean", "std"))
        rows.append((row["paper"], row["table"], Published(columns, row["metric"], mean, std, row["notes"])))
    return rows
