"""Reads a node's own samples, from a file or from a user's function, and makes the splits of nodes and server."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.data import Array, Dataset, Numbering, as_dataset, as_labels
from fedblade.data.client_parts import is_client_data, parts_of, read_parts
from fedblade.data.client_sums import number_by_values
from fedblade.data.own_files import ENDINGS, OwnSamples, QuotesData, dataset_of, is_table_file
from fedblade.data.table_encoding import TableEncoding
from fedblade.flower._sums_options import as_options
from fedblade.flower.agreement import Agreement
from fedblade.partitions import ClientTests, Reported

DATA = "data"
"""Key of a node's configuration: a file that is read (`ENDINGS`), a folder with such files called `train` and `test`,
`FILE.py:function`, or `module:function` for an installed module. Without it, every client uses its share."""
_NO_AGREEMENT = (
    "and a node does not know those of all nodes. Let every hospital give `fedblade flower sums` of its file, and the "
    "coordinator `fedblade flower agree` with these sums; then pin the app anew"
)
_AGREED = " These options of `fedblade flower sums` were agreed on; other ones need a new agreement."


@dataclass(frozen=True)
class _RunData:
    """What a run says of its nodes' data: the number of classes, and what all nodes have agreed on, if they have."""

    num_classes: int
    agreement: Agreement | None

    @property
    def encoding(self) -> TableEncoding | None:
        """How tables are encoded; None if the nodes have no tables."""
        return None if self.agreement is None else self.agreement.encoding

    def number(self, labels: Array, test_labels: Array) -> Numbering:
        """Class numbers; a node may have only some of the classes.

        Labels are those that were agreed on, or class numbers.
        """
        if self.agreement is not None and self.agreement.classes is not None:
            return number_by_values(self.agreement.classes, labels, test_labels)
        train, test = (_check_classes(part, self.num_classes) for part in (labels, test_labels))
        return Numbering(train, test, self.num_classes)


def own_dataset(
    source: str, num_classes: int, key: tuple[int, int] = (0, 0), agreement: Agreement | None = None
) -> Dataset:
    """The samples of a node from its `data` (see `DATA`).

    Labels are the run's classes below `num_classes`, or those of the `agreement`, by which tables are read too. Without
    test samples a fifth is held out, as a run on one machine does: `key` is the seed of the split and the number of the
    client.

    A function has no parameters and returns what `fedblade.run` accepts as a data set. The current folder of the node's
    process plays no part.
    """
    run = _RunData(num_classes, agreement)
    if is_client_data(source):
        with _hiding_data(source):
            return dataset_of(_read(source, run, DATA), run.number, key, run.encoding)
    with _hiding_error_texts(source):
        return _as_dataset(_call(source), run, key)


def server_test_set(source: str, num_classes: int, agreement: Agreement | None) -> Dataset:
    """The server's test set, as both parts of a data set; a file without a test part is one as a whole."""
    if is_client_data(source):
        run = _RunData(num_classes, agreement)
        with as_options(_AGREED):
            samples = _read(source, run, "flower.test")
            if samples.x_test is None:
                first = np.arange(min(1, len(samples.y)))
                samples = replace(samples, x=samples.x[first], y=samples.y[first], x_test=samples.x, y_test=samples.y)
            dataset = dataset_of(samples, run.number, encoding=run.encoding)
    else:
        dataset = own_dataset(source, num_classes, agreement=agreement)
    return replace(dataset, train=dataset.test, reader=None)


def _read(source: str, run: _RunData, key: str) -> OwnSamples:
    """The samples of a file or folder that a key of a configuration names, of the kind that the nodes agreed on."""
    parts = parts_of(source)
    if run.encoding is None and is_table_file(parts[0]):
        raise Misconfigured(
            f"{key} = '{source}' holds a table: it is encoded by means, deviations and categories, {_NO_AGREEMENT}."
        )
    samples = read_parts(parts, None if run.agreement is None else run.agreement.settings)
    if run.encoding is not None and isinstance(samples.x, np.ndarray):
        raise Misconfigured(f"{key} = '{source}' holds arrays, and the nodes have agreed on a table. Give a table.")
    return samples


@contextlib.contextmanager
def _hiding_data(source: str) -> Iterator[None]:
    """Keep an error that repeats values of a file on the node."""
    try:
        with as_options(_AGREED):
            yield
    except QuotesData as error:
        raise Misconfigured(f"{DATA} = '{source}' cannot be used as it is. The node's log says why.") from error


@contextlib.contextmanager
def _hiding_error_texts(source: str) -> Iterator[None]:
    """Replace errors of a user's function by their type: their texts may hold data, which must not leave the node.

    An error of this library is replaced too if it repeats data, or has a cause, whose text it may repeat.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, FedbladeError) and error.__cause__ is None and not isinstance(error, QuotesData):
            raise
        raise Misconfigured(
            f"{DATA} = '{source}' failed with a {type(error.__cause__ or error).__name__}. The node's log says more."
        ) from error


def _as_dataset(given: Any, run: _RunData, key: tuple[int, int]) -> Dataset:
    """A data set of the run's classes. Labels are not numbered by this node's classes, which may be only some."""
    dataset = as_dataset(given, run.number, key)
    if dataset.encoding is not None or run.encoding is not None:
        raise Misconfigured(
            "the function returns a table, or the nodes have agreed on a table; expected a table in a file, or arrays "
            "on all nodes. Write the table to a .csv or .parquet file."
        )
    if not isinstance(given, Dataset):
        return dataset
    if dataset.label_values is not None:
        raise Misconfigured(
            f"the data set's labels were renumbered by the classes of this node alone; expected the run's classes 0 to "
            f"{run.num_classes - 1} (flower.num_classes). Renumber the labels as all nodes do."
        )
    for part in (dataset.train, dataset.test):
        _check_classes(part.labels, run.num_classes)
    return replace(dataset, num_classes=run.num_classes)


def _check_classes(given: Array, num_classes: int) -> NDArray[np.int64]:
    if given.dtype.kind == "U":
        raise Misconfigured(
            f"labels are names, {_NO_AGREEMENT}. Or number the labels as all nodes do, 0 to {num_classes - 1} "
            f"(flower.num_classes)."
        )
    labels = as_labels(given)
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise Misconfigured(
            f"{len(wrong)} labels lie outside of the run's classes 0 to {num_classes - 1} (flower.num_classes). "
            f"Renumber the labels as all nodes do, or raise flower.num_classes."
        )
    return labels


def _call(source: str) -> Any:
    """The result of a user's function; its errors are not caught here."""
    module, colon, function = source.rpartition(":")
    if not colon:
        raise Misconfigured(
            f"{DATA} = '{source}' is neither an {' or '.join(ENDINGS)} file nor a folder with files called train and "
            f"test, nor FILE.py:function nor module:function. Give one of them, such as /path/to/ward.py:samples."
        )
    found = _module_in_file(Path(module), source) if module.endswith(".py") else _installed_module(module, source)
    if not hasattr(found, function):
        raise _not_found(source, f"'{module}' has no attribute '{function}'")
    return getattr(found, function)()


def _module_in_file(file: Path, source: str) -> Any:
    """The module in a file. Modules beside the file are found last, so that they hide no installed module."""
    if not file.is_file():
        raise _not_found(source, f"there is no file '{file}'")
    name = f"fedblade_node_data_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # noqa: S101 - the file's name ends in .py
    assert spec.loader is not None  # noqa: S101
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec.loader.exec_module(module)
    return module


def _installed_module(name: str, source: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise _not_found(source, f"No module named '{error.name}'") from None


def _not_found(source: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"{DATA} = '{source}' cannot be found ({why}). Give the function's file, such as /path/to/ward.py:samples, or "
        f"install its module on the node."
    )


def own_clients(dataset: Dataset, client: int, num_clients: int) -> ClientTests:
    """The split as a node sees it that knows only its own client."""
    table = np.zeros((num_clients, dataset.num_classes), dtype=np.int64)
    table[client] = np.bincount(dataset.train.labels, minlength=dataset.num_classes)
    samples = {client: np.arange(len(dataset.train))}
    return ClientTests(Reported(table, dataset.train.labels, samples), "test", np.arange(len(dataset.test)))


def reported_clients(counts: Mapping[int, Sequence[int]], num_clients: int, num_test: int) -> ClientTests:
    """The split as a server sees it that has no client's data; every client is tested on its node's test samples.

    Clients without counts may report them later.
    """
    table = np.zeros((num_clients, len(next(iter(counts.values())))), dtype=np.int64)
    for client, row in counts.items():
        table[client] = row
    unknown = frozenset(range(num_clients)).difference(counts)
    return ClientTests(Reported(table, np.zeros(0, dtype=np.int64), unknown=unknown), "test", np.arange(num_test))
