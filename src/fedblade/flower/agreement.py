"""What nodes with data of their own agree on before a run: the encoding of tables, and the names of classes.

It is a part of the app's configuration, so nodes have it from the app that they have pinned, and from nowhere else.
"""

from dataclasses import dataclass
from typing import Any

from fedblade.data.own_files import ReadSettings
from fedblade.data.table_encoding import CategoryColumn, NumberColumn, TableEncoding
from fedblade.data.table_sums import MOST_CATEGORIES
from fedblade.flower._foreign_table import ForeignTable

KEY = "agreement"
"""Key of the agreement in the table `flower` of an app's configuration."""
MOST_CLASSES, MOST_COLUMNS, MOST_CLIENTS = 10_000, 10_000, 10**6
_WHERE = f"flower.{KEY}"
_ADVICE = "Make the agreement anew: fedblade flower agree."
_OF_TABLES = ("label", "missing", "drop", "categories", "left_out", "columns")
_KEYS = ("clients", "rows", "seed", "classes", *_OF_TABLES)


@dataclass(frozen=True)
class Agreement:
    """How all nodes read their data.

    `clients` gave sums over `rows` training rows; `seed` drew the test samples that were held out, None if every client
    has test samples. `classes` are the labels of the classes 0, 1, …, None if labels are class numbers. `settings` and
    `encoding` are those of tables, None for arrays.
    """

    clients: tuple[int, ...]
    rows: int
    seed: int | None = None
    classes: tuple[int, ...] | tuple[str, ...] | None = None
    settings: ReadSettings | None = None
    encoding: TableEncoding | None = None

    @staticmethod
    def of(given: object) -> "Agreement":
        """The checked agreement in a configuration."""
        table = ForeignTable(given, _WHERE, _ADVICE, _KEYS)
        clients = table.labels("clients", MOST_CLIENTS)
        if not all(isinstance(client, int) and client >= 0 for client in clients):
            raise table.wrong("clients", "numbers of clients")
        settings = read_settings(table) if "columns" in table else None
        return Agreement(
            tuple(map(int, clients)),
            table.whole("rows"),
            table.whole("seed", high=2**63) if "seed" in table else None,
            table.labels("classes", MOST_CLASSES) if "classes" in table else None,
            settings,
            None if settings is None else _encoding(table, fills=settings.missing == "fill"),
        )

    def table(self) -> dict[str, Any]:
        """The agreement as a configuration file has it."""
        table: dict[str, Any] = {"clients": list(self.clients), "rows": self.rows}
        if self.seed is not None:
            table["seed"] = self.seed
        if self.classes is not None:
            table["classes"] = list(self.classes)
        if self.settings is None or self.encoding is None:
            return table
        columns = [
            {"name": column.name, "mean": column.mean, "std": column.std}
            if isinstance(column, NumberColumn)
            else {"name": column.name, "values": list(column.values)}
            for column in self.encoding.columns
        ]
        return table | settings_table(self.settings) | {"left_out": list(self.encoding.left_out), "columns": columns}


def settings_table(settings: ReadSettings) -> dict[str, Any]:
    """The settings by which tables are read, as files have them."""
    return {
        "label": settings.label,
        "missing": settings.missing,
        "drop": list(settings.drop),
        "categories": list(settings.categories),
    }


def read_settings(table: ForeignTable) -> ReadSettings:
    """The checked settings by which tables are read."""
    missing = table.raw("missing")
    if missing not in ("refuse", "fill"):
        raise table.wrong("missing", "'refuse' or 'fill'")
    drop, categories = (table.texts(key, MOST_COLUMNS) for key in ("drop", "categories"))
    return ReadSettings(table.text("label"), missing, drop, categories)


def _encoding(table: ForeignTable, *, fills: bool) -> TableEncoding:
    given = table.raw("columns")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_COLUMNS:
        raise table.wrong("columns", f"a list of 1 to {MOST_COLUMNS:,} columns")
    columns = tuple(_column(column, number) for number, column in enumerate(given))
    left_out = table.texts("left_out", MOST_COLUMNS)
    names = [*(column.name for column in columns), *left_out]
    if len(set(names)) < len(names):
        raise table.refusal("names a column twice", "every column once")
    return TableEncoding(columns, left_out, fills)


def _column(given: object, number: int) -> NumberColumn | CategoryColumn:
    column = ForeignTable(given, f"{_WHERE}.columns[{number}]", _ADVICE, ("name", "mean", "std", "values"))
    name = column.text("name")
    if "values" in column:
        values = column.ascending_texts("values", MOST_CATEGORIES)
        if len(values) < 2:
            raise column.wrong("values", "at least two categories")
        return CategoryColumn(name, values)
    std = column.number("std")
    if std <= 0:
        raise column.wrong("std", "a number above 0")
    return NumberColumn(name, column.number("mean"), std)
