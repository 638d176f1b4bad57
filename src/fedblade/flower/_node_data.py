"""Reads a node's own samples, from a file or from a user's function, and makes the splits of nodes and server."""

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.data import Array, Dataset, Numbering, as_dataset, as_labels
from fedblade.data.own_files import ENDINGS, QuotesData, dataset_of, is_own_file, read_own_file
from fedblade.partitions import ClientTests, Reported

DATA = "data"
"""Key of a node's configuration: a file that is read (`ENDINGS`), `FILE.py:function`, or `module:function` for an
installed module. Without it, every client uses its share."""


def own_dataset(source: str, num_classes: int, key: tuple[int, int] = (0, 0)) -> Dataset:
    """The samples of a node from its `data` (see `DATA`); labels are the run's classes below `num_classes`.

    Without test samples a fifth is held out, as a run on one machine does: `key` is the seed of the split and the
    number of the client.

    A function has no parameters and returns what `fedblade.run` accepts as a data set. The current folder of the node's
    process plays no part.
    """
    if is_own_file(source):
        return _from_file(source, num_classes, key)
    with _hiding_error_texts(source):
        return _as_dataset(_call(source), num_classes, key)


def _from_file(path: str, num_classes: int, key: tuple[int, int]) -> Dataset:
    """The samples of a file. An error that repeats values of the file stays on the node."""
    try:
        samples = read_own_file(path)
        if not isinstance(samples.x, np.ndarray):
            raise Misconfigured(
                f"{DATA} = '{path}' holds a table, and a node does not know the means, deviations and categories of "
                f"all nodes; expected arrays. Encode the columns alike on all nodes, and write them to an .npz file."
            )
        return dataset_of(samples, partial(_number, num_classes), key)
    except QuotesData as error:
        raise Misconfigured(f"{DATA} = '{path}' cannot be used as it is. The node's log says why.") from error


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


def _as_dataset(given: Any, num_classes: int, key: tuple[int, int]) -> Dataset:
    """A data set of `num_classes` classes. Labels are not renumbered, because a node does not know all classes."""
    dataset = as_dataset(given, partial(_number, num_classes), key)
    if dataset.encoding is not None:
        raise Misconfigured(
            "the data are a table, and a node does not know the means, deviations and categories of all nodes; "
            "expected arrays. Encode the columns alike on all nodes."
        )
    if not isinstance(given, Dataset):
        return dataset
    if dataset.label_values is not None:
        raise Misconfigured(
            f"the data set's labels were renumbered by the classes of this node alone; expected the run's classes 0 to "
            f"{num_classes - 1} (flower.num_classes). Renumber the labels as all nodes do."
        )
    numbered = _number(num_classes, dataset.train.labels, dataset.test.labels)
    return replace(dataset, num_classes=numbered.num_classes)


def _number(num_classes: int, labels: Array, test_labels: Array) -> Numbering:
    """Labels as they are, checked to be classes of the run; a node may have only some of the classes."""
    return Numbering(_check_classes(labels, num_classes), _check_classes(test_labels, num_classes), num_classes)


def _check_classes(given: Array, num_classes: int) -> NDArray[np.int64]:
    if given.dtype.kind == "U":
        raise Misconfigured(
            f"labels are names, and a node does not know the names of all nodes; expected the run's classes 0 to "
            f"{num_classes - 1} (flower.num_classes). Number the labels as all nodes do."
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
            f"{DATA} = '{source}' is neither an {' or '.join(ENDINGS)} file nor FILE.py:function nor "
            f"module:function. Give one of them, such as /path/to/ward.py:samples."
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
