"""What a client tells before a run, so that the tables and the labels of clients on different machines are read alike.

Names that occur once do not leave: a column whose texts all differ gives none of them, and one whose texts nearly all
differ is refused. So are labels of which nearly every row has its own. A name that several rows have does leave, as a
category: no rule can tell the two apart, so `fedblade flower sums` prints what leaves and warns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._cells import missing_in
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array
from fedblade.data._table import QuotesData, Table
from fedblade.data._user_labels import (
    Classes,
    Numbering,
    check_are_classes,
    classes_of,
    of_one_kind,
    places_of,
    values_as_text,
)
from fedblade.data.own_files import hold_out_test
from fedblade.data.table_sums import CategorySums, TableSums, check_few, table_sums

_FEW = 10
"""So few different texts may be told, however often they occur."""
Labels = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class ClientSums:
    """Sums over the training rows of a client, and the different labels of all its rows in ascending order.

    `columns` is None if the client has arrays. `single` has, by column, the texts that are in `columns` though one row
    alone has them: the client is warned of these, and nobody else is told which they are.
    """

    rows: int
    test_rows: int
    labels: Labels
    columns: TableSums | None
    single: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Columns of text whose values are not told, because they all differ."""
        return tuple(
            name
            for name, column in ({} if self.columns is None else self.columns.columns).items()
            if isinstance(column, CategorySums) and column.values is None and column.all_different
        )


def client_sums(samples: OwnSamples, key: tuple[int, int]) -> ClientSums:
    """The sums of a client. Without a test part the same fifth is held out as in a run; `key` as for `dataset_of`."""
    samples.check_lengths()
    if len(samples.y) == 0:
        raise Misconfigured("there are no samples; expected at least one. Add samples.")
    whole = hold_out_test(samples, key)
    train, test = of_one_kind(whole.y, whole.y[:0] if whole.y_test is None else whole.y_test)
    values = np.union1d(train, test)
    check_are_classes(values, len(train) + len(test))
    labels = tuple(values.tolist())
    if not isinstance(whole.x, Table):
        return ClientSums(len(train), len(test), labels, None)
    columns = _without_names(table_sums(whole.x))
    return ClientSums(len(train), len(test), labels, columns, _single_texts(whole.x, columns))


def _without_names(sums: TableSums) -> TableSums:
    """The sums without the texts of columns whose texts all differ; refuses columns whose texts nearly all differ."""
    return TableSums(
        {
            name: _without_texts(name, column) if isinstance(column, CategorySums) else column
            for name, column in sums.columns.items()
        }
    )


def _without_texts(name: str, sums: CategorySums) -> CategorySums:
    if sums.all_different:
        return replace(sums, values=None) if sums.count else sums
    different = len(check_few(name, sums))
    if different > max(_FEW, sums.count // 2):
        raise Misconfigured(
            f"column '{name}' has {different} different texts in {sums.count} rows; expected most of them several "
            f"times, because texts that are nearly all different may be names of people, which do not leave. Leave the "
            f"column out: dataset.drop={name}."
        )
    return sums


def _single_texts(table: Table, sums: TableSums) -> dict[str, tuple[str, ...]]:
    """The texts of each column that the sums have, and that one row alone has."""
    single = {}
    for name, column in sums.columns.items():
        if isinstance(column, CategorySums) and column.values:
            cells = table.columns[name]
            texts, counts = np.unique(cells[~missing_in(cells)].astype(str), return_counts=True)
            single[name] = tuple(map(str, texts[counts == 1]))
    return {name: texts for name, texts in single.items() if texts}


def classes_of_clients(clients: Sequence[ClientSums]) -> Classes:
    """The classes of all clients together, numbered as in a run of one machine that has their samples."""
    values = np.unique(np.concatenate([np.array(client.labels) for client in clients]))
    return classes_of(values, sum(client.rows + client.test_rows for client in clients))


def number_by_values(values: Labels, given: Array, given_test: Array) -> Numbering:
    """Labels that are among the labels of all classes, ascending; some classes may have no samples here."""
    train, test = of_one_kind(given, given_test)
    known = np.array(values)
    if known.dtype.kind == "U" and train.dtype.kind != "U":
        raise Misconfigured(f"labels are numbers; expected the names {values_as_text(known)}. Write the names.")
    if known.dtype.kind != "U" and train.dtype.kind == "U":
        raise Misconfigured(f"labels are names; expected the numbers {values_as_text(known)}. Write the numbers.")
    unknown = np.setdiff1d(np.concatenate([train, test]), known)
    if len(unknown):
        raise QuotesData(
            f"some samples have the label {values_as_text(unknown)}; expected {values_as_text(known)}. Correct the "
            f"labels, or leave these samples out."
        )
    return Numbering(places_of(known, train), places_of(known, test), len(known), values)
