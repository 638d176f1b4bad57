"""What a reader of a user's file gives, and the settings that readers take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._dataset import Array


class QuotesData(Misconfigured):
    """An error whose text repeats values of the user's data. A node does not send it on."""


@dataclass(frozen=True)
class ReadSettings:
    """How files are read.

    `label` names the label column of a table. `missing` says what happens to empty cells: they are refused, or filled.
    `drop` names columns to leave out, and `categories` columns of numbers that are names of categories.
    """

    label: str = "label"
    missing: Literal["refuse", "fill"] = "refuse"
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Columns by name, before they are encoded: numbers as float64 [n], categories as str objects [n].

    A missing number is NaN, a missing category is "". `table[indices]` selects rows.
    """

    columns: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, indices: Array) -> "Table":
        return Table({name: column[indices] for name, column in self.columns.items()})

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns of numbers."""
        return tuple(name for name, column in self.columns.items() if column.dtype == np.float64)


@dataclass(frozen=True)
class OwnSamples:
    """Samples as a file or a user gives them: labels are not numbered, and tables are not encoded.

    `x` is an array [n, …] or a `Table`, `y` the labels [n] as given. The test part is None if there is none. `source`
    says in a few words what the samples were read from, and `notes` are lines for the user.
    """

    x: Array | Table
    y: Array
    x_test: Array | Table | None = None
    y_test: Array | None = None
    source: str = "given from Python"
    notes: tuple[str, ...] = ()
