"""Sums over the training rows of a table. They may leave a client: they add up over clients, and hold no row.

A column of numbers gives its count, sum and sum of squares. A column of text gives its count and the set of its
categories, unless there are too many to be categories: names of people, say, do not leave.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import missing_in
from fedblade.data._source import Array
from fedblade.data._table import Table

MOST_CATEGORIES = 100
"""A column of text with more different values is not encoded."""


@dataclass(frozen=True)
class NumberSums:
    """Sums of a column of numbers. `all_different` says whether every value is whole and occurs once."""

    count: int
    total: float
    squares: float
    all_different: bool

    def plus(self, other: "NumberSums") -> "NumberSums":
        """The sums over both sets of rows."""
        return NumberSums(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            self.all_different and other.all_different,
        )


@dataclass(frozen=True)
class CategorySums:
    """The categories of a column of text, sorted; None if there are more than `MOST_CATEGORIES`."""

    count: int
    values: tuple[str, ...] | None
    all_different: bool

    def plus(self, other: "CategorySums") -> "CategorySums":
        """The sums over both sets of rows."""
        values = None
        if self.values is not None and other.values is not None:
            values = _few({*self.values, *other.values})
        return CategorySums(self.count + other.count, values, self.all_different and other.all_different)


@dataclass(frozen=True)
class TableSums:
    """The sums of all columns of a table, by name."""

    columns: Mapping[str, NumberSums | CategorySums]

    def plus(self, other: "TableSums") -> "TableSums":
        """The sums over the rows of both tables, which need the same columns of the same kinds."""
        check_same_columns(tuple(self.columns), tuple(other.columns))
        return TableSums({name: _add(name, mine, other.columns[name]) for name, mine in self.columns.items()})

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {name: asdict(column) for name, column in self.columns.items()}

    @staticmethod
    def from_json(given: Mapping[str, Mapping[str, Any]]) -> "TableSums":
        """The sums from what `to_json` gave."""
        return TableSums({name: _column_from_json(column) for name, column in given.items()})


def _column_from_json(given: Mapping[str, Any]) -> NumberSums | CategorySums:
    if "total" in given:
        return NumberSums(**given)
    values = given["values"]
    return CategorySums(**{**given, "values": None if values is None else tuple(values)})


def check_same_columns(expected: tuple[str, ...], given: tuple[str, ...], other: str = "the one before") -> None:
    """Refuse a table with other columns than expected; their order does not matter. `other` has the expected ones."""
    lacking, surplus = sorted({*expected} - {*given}), sorted({*given} - {*expected})
    if lacking or surplus:
        name, which = (lacking[0], "no column") if lacking else (surplus[0], "a column")
        raise Misconfigured(
            f"the table has {which} '{name}', and {other} has {'one' if lacking else 'none'}; expected the same "
            f"columns in all tables. Add the column where it is missing, or remove it from the other tables."
        )


def _add(name: str, mine: NumberSums | CategorySums, other: NumberSums | CategorySums) -> NumberSums | CategorySums:
    # A column without any value is a column of either kind.
    if isinstance(mine, NumberSums) and isinstance(other, NumberSums):
        return mine.plus(other)
    if isinstance(mine, CategorySums) and isinstance(other, CategorySums):
        return mine.plus(other)
    if 0 not in (mine.count, other.count):
        raise Misconfigured(
            f"column '{name}' holds {_kind(other)} in this table and {_kind(mine)} in the one before; expected one "
            f"kind. Correct the cells, or read the numbers as names of categories: dataset.categories={name}."
        )
    return other if mine.count == 0 else mine


def _kind(sums: NumberSums | CategorySums) -> str:
    return "numbers" if isinstance(sums, NumberSums) else "text"


def table_sums(table: Table) -> TableSums:
    """The sums of a table. They are exactly rounded, so that the order of its rows plays no part."""
    return TableSums({name: _column_sums(name, column) for name, column in table.columns.items()})


def _column_sums(name: str, column: Array) -> NumberSums | CategorySums:
    present = column[~missing_in(column)]
    if column.dtype != np.float64:
        different = set(present)
        return CategorySums(len(present), _few(different), len(different) == len(present))
    with np.errstate(over="ignore"):
        squares = present * present
    if not np.isfinite(squares).all():
        raise Misconfigured(
            f"column '{name}' has numbers too large to be squared (above 1e154). Rescale the column, or leave it out: "
            f"dataset.drop={name}."
        )
    all_different = bool(np.array_equal(present, np.trunc(present))) and len(np.unique(present)) == len(present)
    return NumberSums(len(present), math.fsum(present.tolist()), math.fsum(squares.tolist()), all_different)


def _few(values: set[str]) -> tuple[str, ...] | None:
    return tuple(sorted(values)) if len(values) <= MOST_CATEGORIES else None


def check_few(name: str, sums: CategorySums) -> tuple[str, ...]:
    """The categories of a column of text; refuses too many."""
    if sums.values is None:
        raise Misconfigured(
            f"column '{name}' has more than {MOST_CATEGORIES} different texts; expected few, because every text "
            f"becomes an input. Group rare ones, or leave the column out: dataset.drop={name}."
        )
    return sums.values
