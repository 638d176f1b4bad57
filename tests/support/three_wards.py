"""Three wards with data of their own, apart on nodes and together on one machine."""

from dataclasses import replace
from functools import cache

import numpy as np

from fedblade.core.registry import datasets
from fedblade.data import as_dataset
from fedblade.flower._node import Node
from fedblade.partitions import ClientTests, Split
from fedblade.runs import prepare
from support.node_runs import QUICK, Far, Leaving, trained

CLASSES = ((0, 1, 2, 3), (3, 4, 5, 6, 7), (0, 6, 7, 8, 9))
"""What each ward sees: nobody sees everything, and one class is seen by one of them alone."""
APART = QUICK.model_copy(update={"data": "nodes", "num_classes": 10})
CHANGES = {"num_clients": 3, "clients_per_round": 3, "evaluation.every": 1, "evaluation.metrics": []}


@cache
def digits():
    whole = datasets.get("digits").make()
    inputs = np.concatenate([whole.train.inputs, whole.test.inputs])
    return inputs.astype(np.float32) / 16, np.concatenate([whole.train.labels, whole.test.labels])


@cache
def ward(number):
    """Training and test samples of one client."""
    inputs, labels = digits()
    mine = np.flatnonzero(np.isin(labels, CLASSES[number]))[number::3]
    train, test = mine[:-40], mine[-40 + 7 * number :]
    return inputs[train], labels[train], inputs[test], labels[test]


def together(parts, config):
    """A run of one machine that has the data of everyone."""
    whole = as_dataset(tuple(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return at_one_place(replace(whole, num_classes=10), [len(part[1]) for part in parts], config)


def at_one_place(whole, sizes, config):
    """A run of one machine with the training samples of clients that have so many each."""
    offsets = np.cumsum([0, *sizes])
    split = Split(np.arange(len(whole.train)), offsets, whole.train.labels, 10)
    setup = prepare(config, whole, clients=ClientTests(split, "test", np.arange(len(whole.test))))
    return trained(replace(setup, engine=Leaving(setup.engine, {})))


def saved(folder, parts):
    folder.mkdir(exist_ok=True)
    for k, part in enumerate(parts):
        np.savez(folder / f"{k}.npz", **dict(zip(("x_train", "y_train", "x_test", "y_test"), part, strict=True)))
    return [str(folder / f"{k}.npz") for k in range(len(parts))]


def apart(folder, sources, **given):
    there = {50 + k: Node((k,), source, folder / f"n{k}", "cpu") for k, source in enumerate(sources)}
    return Far(given.pop("config"), folder, APART.model_copy(update=given), there=there)
