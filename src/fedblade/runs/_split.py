"""Who trains on which samples, and whose personal models are measured on which."""

import inspect

import numpy as np

from fedblade.config.run_config import RunConfig
from fedblade.core.errors import Misconfigured
from fedblade.core.plan import IntArray
from fedblade.core.streams import Stream, Streams
from fedblade.data import ClientData, Dataset, as_dataset
from fedblade.partitions import VALIDATION, ClientTests, Partitioner, Parts, hold_out, split_test

MAX_EVALUATED_CLIENTS = 10_000
"""Clients whose personal models are measured. In a larger population, this many clients are chosen at random."""
_VALIDATION_PERCENT = 10


def named_dataset(config: RunConfig) -> Dataset:
    """The data set that a configuration names. The test samples of clients that have none are drawn by its seed."""
    made = config.dataset.make()
    return made.dataset(config.split_seed) if isinstance(made, ClientData) else as_dataset(made)


def split_training_data(config: RunConfig, dataset: Dataset) -> Parts:
    """Divide the whole training set among the clients; nothing is held out for tests."""
    partitioner: Partitioner = config.partition.make()
    if not _divides(partitioner):
        raise Misconfigured(
            f"partition '{config.partition.name}' returned a {type(partitioner).__name__}; expected a "
            f"fedblade.api.Partitioner, which has `split(labels, num_clients, seed, *, num_classes, groups)`."
        )
    return partitioner.split(
        dataset.train.labels,
        config.federation.num_clients,
        config.split_seed,
        num_classes=dataset.num_classes,
        groups=dataset.train.groups,
    )


def _divides(partitioner: object) -> bool:
    """Whether the object has a method `split` with the arguments of a partitioner; strings have another one."""
    try:
        inspect.signature(partitioner.split).bind([], 1, 1, num_classes=1, groups=None)  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def split_clients(config: RunConfig, dataset: Dataset) -> ClientTests:
    """Divide the training set among the clients, and choose the samples that each client is tested on."""
    kind, split = config.dataset_settings.test_split, split_training_data(config, dataset)
    return split_test(kind, split, dataset.test.labels, config.split_seed, test_groups=dataset.test.groups)


def training_split(config: RunConfig, dataset: Dataset) -> Parts:
    """The samples that clients train on, without those held out for tests and validation."""
    clients = split_clients(config, dataset)
    return hold_out_validation(config, clients)[0].train if config.evaluation.on == "validation" else clients.train


def hold_out_validation(config: RunConfig, clients: ClientTests) -> tuple[ClientTests, IntArray]:
    """Hold a part of every client's data out for validation: the new split, and all validation samples, shuffled."""
    held_out = hold_out(clients.train, config.split_seed, _VALIDATION_PERCENT, VALIDATION)
    if len(held_out.order) == 0:
        raise Misconfigured(
            f"evaluation.on = 'validation' holds {_VALIDATION_PERCENT} % of each client's data back, but no client has "
            f"enough samples. Use fewer clients or evaluation.on = 'test'."
        )
    return held_out, shuffled(config.general.seed, held_out.order)


def client_names(dataset: Dataset, split: Parts) -> tuple[str, ...] | None:
    """The names of the clients, if each client is a group of the data and the groups have names."""
    if split.groups is None or dataset.group_names is None:
        return None
    return tuple(dataset.group_names[group] for group in split.groups)


def shuffled(seed: int, indices: IntArray) -> IntArray:
    """The samples in a fixed random order. Every batch then mixes classes, which batch statistics depend on."""
    return Streams(seed).numpy(Stream.EVALUATION_ORDER, 1).permutation(indices)


def choose_evaluated_clients(seed: int, eligible: IntArray) -> IntArray:
    """The clients whose models are measured: all, or a random choice in a large population."""
    return choose_clients_to_measure(seed, eligible, MAX_EVALUATED_CLIENTS)


def choose_clients_to_measure(seed: int, eligible: IntArray, most: int) -> IntArray:
    """All of these clients, or a random choice of `most` of them if there are more."""
    if len(eligible) <= most:
        return eligible
    places = Streams(seed).numpy(Stream.MEASURED_CLIENTS).choice(len(eligible), most, replace=False)
    return np.sort(eligible[places])
