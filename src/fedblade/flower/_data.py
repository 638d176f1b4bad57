"""Where a node's samples come from: a file, a function of the user's, or a share of a data set, for rehearsals."""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.data import IN_NPZ, NAMES, Array, Dataset, Numbering, as_dataset, as_labels
from fedblade.partitions import ClientTests, Reported

DATA = "data"
"""Key of a node's configuration: a path of an `.npz` file or `module:function`; without it the node takes its share."""


def own_dataset(source: str, num_classes: int) -> Dataset:
    """The samples of a node from `FILE.npz` or `module:function`, numbered like everybody's `num_classes` classes.

    The function takes nothing and gives what `fedblade.run` takes as a data set. A function is looked up in the folder
    of the node's process first.
    """
    if source.endswith(".npz"):
        return replace(_as_own(_read(source), num_classes), source=IN_NPZ)
    with _without_their_words(source):
        return _as_own(_call(source), num_classes)


@contextlib.contextmanager
def _without_their_words(source: str) -> Iterator[None]:
    """Name errors of a user's code by their type: what they say may hold data, which must not leave the node.

    An error of ours repeats what caused it, if anything did.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, FedbladeError) and error.__cause__ is None:
            raise
        raise Misconfigured(
            f"{DATA} = '{source}' failed with a {type(error.__cause__ or error).__name__}. The node's log says more."
        ) from error


def _as_own(given: Any, num_classes: int) -> Dataset:
    """What was read or given as a data set of `num_classes` classes. Labels stay: a node cannot know all classes."""
    if not isinstance(given, Dataset):
        return as_dataset(given, partial(_agreed, num_classes))
    if given.label_values is not None:
        raise Misconfigured(
            f"the data set's labels were numbered by what this node alone has; expected the run's classes 0 to "
            f"{num_classes - 1} (flower.num_classes). Renumber the labels as all nodes do."
        )
    numbered = _agreed(num_classes, given.train.labels, given.test.labels)
    return replace(given, num_classes=numbered.num_classes)


def _agreed(num_classes: int, labels: Array, test_labels: Array) -> Numbering:
    """Labels that are classes of the run; a node may see one class alone, or high numbers and few samples."""
    return Numbering(_checked(labels, num_classes), _checked(test_labels, num_classes), num_classes)


def _checked(given: Array, num_classes: int) -> NDArray[np.int64]:
    labels = as_labels(given)
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise Misconfigured(
            f"{len(wrong)} labels lie outside of the run's classes 0 to {num_classes - 1} (flower.num_classes). "
            f"Renumber the labels as all nodes do, or raise flower.num_classes."
        )
    return labels


def _read(path: str) -> tuple[Any, ...]:
    """The arrays of a file."""
    if not Path(path).is_file():
        raise Misconfigured(f"'{path}' does not exist. Give the path of an .npz file with {', '.join(NAMES)}.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in NAMES if name in archive}
    except Exception as error:  # a file can be broken in any way, and what is said then may repeat parts of it
        raise Misconfigured(
            f"'{path}' cannot be read as an .npz file of plain arrays ({type(error).__name__}). Write it with "
            f"numpy.savez, with {', '.join(NAMES)} as arrays of numbers."
        ) from error
    missing = [name for name in NAMES if name not in found]
    if missing:
        raise Misconfigured(f"'{path}' has no array '{missing[0]}'; expected {', '.join(NAMES)}.")
    return tuple(found[name] for name in NAMES)


def _call(source: str) -> Any:
    """What a function of the user's gives; whatever it raises comes through."""
    module, colon, function = source.partition(":")
    if not colon:
        raise Misconfigured(
            f"{DATA} = '{source}' is neither an .npz file nor module:function. Give one of them in the node's "
            f'configuration, such as data="ward:samples".'
        )
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise _not_found(source, f"No module named '{error.name}'") from None
    finally:
        sys.path.remove(here)
    if not hasattr(found, function):
        raise _not_found(source, f"module '{module}' has no attribute '{function}'")
    return getattr(found, function)()


def _not_found(source: str, why: str) -> Misconfigured:
    return Misconfigured(f"{DATA} = '{source}' cannot be found ({why}). Start the node where it is.")


def own_clients(dataset: Dataset, client: int, num_clients: int) -> ClientTests:
    """The split of a node that knows of its own client alone."""
    table = np.zeros((num_clients, dataset.num_classes), dtype=np.int64)
    table[client] = np.bincount(dataset.train.labels, minlength=dataset.num_classes)
    held = {client: np.arange(len(dataset.train))}
    return ClientTests(Reported(table, dataset.train.labels, held), "test", np.arange(len(dataset.test)))


def reported_clients(counts: Mapping[int, list[int]], num_test: int) -> ClientTests:
    """The split of a server that has no client's data; every client is measured on its own."""
    table = np.array([counts[client] for client in sorted(counts)], dtype=np.int64)
    return ClientTests(Reported(table, np.zeros(0, dtype=np.int64)), "test", np.arange(num_test))
