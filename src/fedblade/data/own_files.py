"""A user's own files as samples: the one reader of data sets, of folders with a file per client, and of nodes.

The way of a file: `read_own_file`, then `hold_out_test` where the file has no test samples, then `encoded` over the
samples of all clients together, then `dataset_of` (or the arrays themselves, where several clients become one data
set). Only `encoded` looks at several clients at once, and it adds up sums of their training samples alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural
from fedblade.data._client_values import naming
from fedblade.data._dataset import Dataset
from fedblade.data._hold_out import held_out_note, hold_out_test
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._read_csv import read_csv
from fedblade.data._read_npz import read_npz
from fedblade.data._read_parquet import read_parquet
from fedblade.data._source import Array
from fedblade.data._table import QuotesData, Table
from fedblade.data._user_arrays import arrays_dataset
from fedblade.data._user_labels import Numbering, number_by_names, number_labels
from fedblade.data.table_encoding import TableEncoding, encoding_of
from fedblade.data.table_sums import TableSums, table_sums

__all__ = [
    "ENDINGS",
    "OwnSamples",
    "QuotesData",
    "ReadSettings",
    "dataset_of",
    "encoded",
    "hold_out_test",
    "is_own_file",
    "is_table_file",
    "read_own_file",
    "with_test",
]


@dataclass(frozen=True)
class _Format:
    """The reader of files with an ending, and what such a file holds."""

    read: Callable[[Path, ReadSettings], OwnSamples]
    holds: str


_FORMATS = {
    ".npz": _Format(read_npz, "arrays x_train, y_train, x_test, y_test"),
    ".csv": _Format(read_csv, "a table of text"),
    ".tsv": _Format(read_csv, "a table of text"),
    ".parquet": _Format(read_parquet, "a table"),
}
ENDINGS = tuple(_FORMATS)
"""Endings of the files that are read."""


def is_own_file(path: str | Path) -> bool:
    """Whether a path ends as a file that is read; the file may be missing."""
    return Path(path).suffix.lower() in _FORMATS


def is_table_file(path: str | Path) -> bool:
    """Whether a file is read as a table, by its ending."""
    known = _FORMATS.get(Path(path).suffix.lower())
    return known is not None and known.read is not read_npz


def read_own_file(path: str | Path, settings: ReadSettings | None = None) -> OwnSamples:
    """The samples of one file, before labels are numbered and before a table is encoded.

    An error whose text repeats values of the file is a `QuotesData`.
    """
    file = Path(path).expanduser()
    known = _FORMATS.get(file.suffix.lower())
    if known is None:
        endings = ", ".join(f"{ending} ({known.holds})" for ending, known in _FORMATS.items())
        raise Misconfigured(f"'{path}' has the ending '{file.suffix}'; the endings that are read are {endings}.")
    if file.is_dir():
        raise Misconfigured(f"'{path}' is a folder; expected a file with {known.holds}. Give the path of a file.")
    if not file.is_file():
        raise Misconfigured(f"'{path}' does not exist. Give the path of a file with {known.holds}.")
    return known.read(file, settings or ReadSettings())


def with_test(samples: OwnSamples, test: OwnSamples) -> OwnSamples:
    """Samples whose test part is what another file holds for training."""
    if samples.x_test is not None or test.x_test is not None:
        raise Misconfigured(
            f"{samples.source}: there is a test file, and one of the two files has test samples besides (x_test); "
            f"expected one place. Leave the test file out (dataset.test_path), or give files without x_test."
        )
    return replace(samples, x_test=test.x, y_test=test.y, notes=(*samples.notes, *test.notes))


def encoded(clients: Mapping[str, OwnSamples]) -> dict[str, OwnSamples]:
    """The samples of all clients by name, with arrays in the place of tables, all encoded alike.

    Every client has its test part. Columns are encoded by sums over the training samples of all clients.
    """
    tables = {name: samples.x for name, samples in clients.items() if isinstance(samples.x, Table)}
    if not tables:
        return dict(clients)
    if len(tables) < len(clients):
        other = next(name for name in clients if name not in tables)
        raise Misconfigured(
            f"client '{next(iter(tables))}' has a table, and client '{other}' arrays; expected one kind. Convert one "
            f"of them."
        )
    encoding, notes = encoding_of(_added(tables), fills=any(table.fills for table in tables.values()))
    in_arrays = {}
    for name, samples in clients.items():
        with naming(name):
            in_arrays[name] = _encode(replace(samples, notes=(*notes, *samples.notes)), encoding)
    return in_arrays


def _added(tables: Mapping[str, Table]) -> TableSums:
    """The sums over the rows of all clients."""
    running: list[TableSums] = []
    for name, table in tables.items():
        with naming(name):
            sums = table_sums(table)
            running.append(running[-1].plus(sums) if running else sums)
    return running[-1]


def _encode_as_agreed(samples: OwnSamples, encoding: TableEncoding) -> OwnSamples:
    """The samples of one client, encoded by an encoding that other clients have too."""
    for part in (samples.x, samples.x_test):
        if isinstance(part, Table):
            encoding.check_columns(part)
    unknown: tuple[str, ...] = ()
    if isinstance(samples.x, Table):
        unknown = encoding.unknown(samples.x, "in the training samples that the agreement does not have")
    return _encode(replace(samples, notes=(*samples.notes, *unknown)), encoding)


def _encode(samples: OwnSamples, encoding: TableEncoding) -> OwnSamples:
    """The samples of one client, encoded."""
    parts = samples.x, samples.x_test
    if not all(isinstance(part, Table) for part in parts):
        raise Misconfigured(
            "of training and test samples, one part is a table and the other arrays; expected both as tables. Convert "
            "the arrays."
        )
    x, x_test = (encoding.encode(part, samples.source) for part in parts if isinstance(part, Table))
    unknown = encoding.unknown(samples.x_test) if isinstance(samples.x_test, Table) else ()
    return replace(samples, x=x, x_test=x_test, encoding=encoding, notes=(*samples.notes, *unknown))


def dataset_of(
    samples: OwnSamples,
    number: Callable[[Array, Array], Numbering] = number_labels,
    key: tuple[int, int] = (0, 0),
    encoding: TableEncoding | None = None,
) -> Dataset:
    """The data set of one file or one client alone; without a test part, a fifth of the samples becomes one.

    `key` is the seed and the number of the client that draw the fifth. A table is encoded by its own training samples,
    or by an `encoding` that several clients share.
    """
    samples.check_lengths()
    count, given = len(samples.y), samples.x_test is not None
    if not given and count < 2:
        raise Misconfigured(
            f"there are no test samples, and {plural(count, 'sample')} are too few to hold some out; expected at least "
            f"2. Add samples, or give test samples."
        )
    whole = hold_out_test(samples, key)
    whole = encoded({"": whole})[""] if encoding is None else _encode_as_agreed(whole, encoding)
    if samples.class_names is not None and number is number_labels:
        number = partial(number_by_names, samples.class_names)
    dataset = arrays_dataset(cast("tuple[Array, ...]", (whole.x, whole.y, whole.x_test, whole.y_test)), number)
    notes = (*dataset.notes, *whole.notes, *(() if given else (held_out_note(len(dataset.test), count),)))
    return replace(dataset, source=whole.source, encoding=whole.encoding, notes=notes)
