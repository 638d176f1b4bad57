"""A table before it is encoded, and the error that quotes it."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedblade.core.errors import Misconfigured
from fedblade.data._source import Array


class QuotesData(Misconfigured):
    """An error whose text repeats values of the user's data. A node does not send it on."""


@dataclass(frozen=True)
class Table:
    """Columns by name, before they are encoded: numbers as float64 [n], categories as str objects [n].

    A missing number is NaN, a missing category is "". `table[indices]` selects rows. `fills` says whether missing
    values are filled; otherwise there are none.
    """

    columns: Mapping[str, Array]
    fills: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, indices: Array) -> "Table":
        return Table({name: column[indices] for name, column in self.columns.items()}, self.fills)
