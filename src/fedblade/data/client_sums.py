"""What a client tells before a run, so that the tables and the labels of clients on different machines are read alike.

A column of text whose values all differ gives no values: they may be names of people. `client_sums` is as strict with
labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._own_samples import OwnSamples
from fedblade.data._table import Table
from fedblade.data._user_labels import Classes, check_are_classes, classes_of, of_one_kind
from fedblade.data.own_files import hold_out_test
from fedblade.data.table_sums import CategorySums, TableSums, check_few, table_sums

Labels = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class ClientSums:
    """Sums over the training rows of a client, and the different labels of all its rows in ascending order.

    `columns` is None if the client has arrays.
    """

    rows: int
    test_rows: int
    labels: Labels
    columns: TableSums | None

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
    columns = _without_names(table_sums(whole.x)) if isinstance(whole.x, Table) else None
    return ClientSums(len(train), len(test), tuple(values.tolist()), columns)


def _without_names(sums: TableSums) -> TableSums:
    """The sums without the values of columns of text whose values all differ; refuses too many values otherwise."""
    for name, column in sums.columns.items():
        if isinstance(column, CategorySums) and not column.all_different:
            check_few(name, column)
    return TableSums(
        {
            name: replace(column, values=None)
            if isinstance(column, CategorySums) and column.all_different and column.count
            else column
            for name, column in sums.columns.items()
        }
    )


def classes_of_clients(clients: Sequence[ClientSums]) -> Classes:
    """The classes of all clients together, numbered as in a run of one machine that has their samples."""
    values = np.unique(np.concatenate([np.array(client.labels) for client in clients]))
    return classes_of(values, sum(client.rows + client.test_rows for client in clients))
