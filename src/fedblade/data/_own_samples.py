"""What a reader of a user's file gives, and the settings that readers take."""

from dataclasses import dataclass
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.data._source import Array
from fedblade.data._table import Table
from fedblade.data.table_encoding import TableEncoding


@dataclass(frozen=True)
class ReadSettings:
    """How files are read.

    `label` names the label column of a table. `missing` says what happens to empty cells: they are refused, or filled.
    `drop` names columns to leave out, `categories` columns of numbers that are names of categories, and `only` the
    columns to read, if not all. Rows to predict for have no label: `label` is then "".
    """

    label: str = "label"
    missing: Literal["refuse", "fill"] = "refuse"
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    @staticmethod
    def of(label: str, missing: Literal["refuse", "fill"], drop: str, categories: str) -> "ReadSettings":
        """The settings as a configuration has them: names with commas between them."""
        lists = (tuple(name.strip() for name in text.split(",") if name.strip()) for text in (drop, categories))
        return ReadSettings(label, missing, *lists)

    def is_input(self, column: str) -> bool:
        """Whether a column of a table is read as an input."""
        wanted = not self.only or column in self.only
        return wanted and column not in ("", self.label) and column not in self.drop


@dataclass(frozen=True)
class OwnSamples:
    """Samples as a file or a user gives them: labels are not numbered, and tables are not encoded.

    `x` is an array [n, …] or a `Table`, `y` the labels [n] as given. The test part is None if there is none. `source`
    says in a few words what the samples were read from, and `notes` are lines for the user. `encoding` is how inputs
    were made from a table, once they are. With `class_names` the labels are numbers of these names.
    """

    x: Array | Table
    y: Array
    x_test: Array | Table | None = None
    y_test: Array | None = None
    source: str = "given from Python"
    notes: tuple[str, ...] = ()
    encoding: TableEncoding | None = None
    class_names: tuple[str, ...] | None = None

    def check_lengths(self) -> None:
        """Refuse a part whose inputs and labels are not equally many. Rows to predict for have no labels."""
        for kind, x, y in (("", self.x, self.y), ("test ", self.x_test, self.y_test)):
            if x is None or y is None:
                continue
            shape = (len(x),) if isinstance(x, Table) else x.shape
            if () in (shape, y.shape) or len(x) != len(y):
                raise Misconfigured(
                    f"there are {kind}inputs of shape {shape} and {kind}labels of shape {y.shape}; expected one label "
                    f"for each input. Give one class for each sample."
                )
