"""Where a node's samples come from: a file, a function of the user's, or a share of a data set, for rehearsals."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset, as_dataset
from fedblade.data.arrays import arrays
from fedblade.partitions import ClientTests, Reported

DATA = "data"
"""Key of a node's configuration: a path of an `.npz` file or `module:function`; without it the node takes its share."""


def own_dataset(source: str, num_classes: int) -> Dataset:
    """The samples of a node from `FILE.npz` or `module:function`, numbered like everybody's `num_classes` classes.

    The function takes nothing and gives what `fedblade.run` takes as a data set. A function is looked up in the folder
    of the node's process first.
    """
    found = arrays(source) if source.endswith(".npz") else as_dataset(_call(source))
    highest = int(max(found.train.labels.max(), found.test.labels.max()))
    if highest >= num_classes:
        raise Misconfigured(
            f"the node's data have label {highest}; the run has {num_classes} classes (flower.num_classes). "
            f"Renumber the labels as all nodes do, or raise flower.num_classes."
        )
    return replace(found, num_classes=num_classes)


def _call(source: str) -> Any:
    module, colon, function = source.partition(":")
    if not colon:
        raise Misconfigured(
            f"{DATA} = '{source}' is neither an .npz file nor module:function. Give one of them in the node's "
            f'configuration, such as data="ward:samples".'
        )
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise Misconfigured(f"{DATA} = '{source}' cannot be found ({error}). Start the node where it is.") from error
    finally:
        sys.path.remove(here)


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
