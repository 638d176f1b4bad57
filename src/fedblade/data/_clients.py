"""Clients with data of their own, and the one data set that they are together: its groups are the clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from torch.utils.data import ConcatDataset

from fedblade.core.errors import Misconfigured
from fedblade.core.words import short_listing
from fedblade.data._client_agreement import check_arrays, check_datasets, check_items
from fedblade.data._client_values import ClientValue, TorchSamples, client_values, naming
from fedblade.data._dataset import Dataset, Part
from fedblade.data._hold_out import hold_out_test
from fedblade.data._own_samples import OwnSamples
from fedblade.data._user import as_dataset
from fedblade.data._user_datasets import read_items, split_items
from fedblade.data.own_files import dataset_of, encoded

Sizes = tuple[list[int], list[int]]
"""Training and test samples of each client."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """The data of clients by name. Clients are numbered in the order of the names."""

    values: Mapping[str, ClientValue]
    source: str = "given from Python"
    _made: dict[int, Dataset] = field(default_factory=dict)

    @staticmethod
    def of(given: object) -> "ClientData":
        """The data of clients from a dict; see `fedblade.run` for the values that it may have."""
        return ClientData(client_values(given))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clients."""
        return tuple(self.values)

    def dataset(self, seed: int) -> Dataset:
        """The data of all clients as one data set; both parts name the client of each sample as its group.

        Labels are numbered over all clients together. Of a client without test samples a fifth of the samples is held
        out, drawn by `seed` and the number of the client.
        """
        if seed not in self._made:
            # Runs of a study ask again and again; of several seeds only the last data set is kept.
            self._made.clear()
            self._made[seed] = self._make(seed)
        return self._made[seed]

    def _make(self, seed: int) -> Dataset:
        kinds = {type(value) for value in self.values.values()}
        if Dataset in kinds and len(kinds) > 1:
            raise Misconfigured(
                "clients has a fedblade.data.Dataset for some clients and other data for others; expected one form. "
                "Give arrays for all of them."
            )
        values: Any = self.values
        if kinds == {Dataset}:
            whole, sizes = _join_datasets(values)
        elif kinds == {TorchSamples}:
            whole, sizes = _join_items(values, seed)
        else:
            whole, sizes = _join_arrays({name: _as_arrays(name, value) for name, value in values.items()}, seed)
        train, test = (
            replace(part, groups=np.repeat(np.arange(len(counts)), counts))
            for part, counts in zip((whole.train, whole.test), sizes, strict=True)
        )
        notes = (*whole.notes, *_note_on_tests([name for name, value in values.items() if not _has_tests(value)]))
        return replace(
            whole, name="clients", train=train, test=test, group_names=self.names, source=self.source, notes=notes
        )


def _has_tests(value: ClientValue) -> bool:
    match value:
        case OwnSamples():
            return value.x_test is not None
        case TorchSamples():
            return value.test is not None
    return True


def _note_on_tests(without: Sequence[str]) -> tuple[str, ...]:
    """One line about the clients that gave no test samples."""
    if not without:
        return ()
    return (
        f"test samples: {short_listing(without)} gave none, so a fifth of the client's samples is held out, in the mix "
        f"of its labels (at least one sample; a single sample stays for training)",
    )


def _join_arrays(clients: Mapping[str, OwnSamples], seed: int) -> tuple[Dataset, Sizes]:
    held_out = {name: hold_out_test(samples, (seed, k)) for k, (name, samples) in enumerate(clients.items())}
    by_name = encoded(held_out)
    check_arrays(by_name)
    parts = list(by_name.values())
    x, y, x_test, y_test = (
        np.concatenate(cast("Any", column))
        for column in zip(*((part.x, part.y, part.x_test, part.y_test) for part in parts), strict=True)
    )
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    whole = replace(parts[0], x=x, y=y, x_test=x_test, y_test=y_test, notes=notes)
    return dataset_of(whole), ([len(part.y) for part in parts], [len(cast("Any", part.y_test)) for part in parts])


def _as_arrays(name: str, value: ClientValue) -> OwnSamples:
    """The samples of a client whose torch datasets draw no random numbers, read once."""
    if isinstance(value, OwnSamples):
        return value
    assert isinstance(value, TorchSamples)  # noqa: S101 - the only other form that may stand beside arrays
    with naming(name):
        parts = [read_items(part) for part in (value.train, value.test) if part is not None]
        if any(part.is_random for part in parts):
            raise Misconfigured(
                "its torch dataset draws random numbers, and other clients have arrays; expected one form. Give torch "
                "datasets for all clients, or leave the random transforms out."
            )
    train, test = parts[0], parts[1] if len(parts) > 1 else None
    return OwnSamples(
        train.inputs, train.labels, None if test is None else test.inputs, None if test is None else test.labels
    )


def _join_items(clients: Mapping[str, TorchSamples], seed: int) -> tuple[Dataset, Sizes]:
    """Torch datasets one after another; if they draw random numbers, their items are read again in every epoch."""
    check_items({name: samples.train for name, samples in clients.items()})
    trains, tests = [], []
    for k, (name, samples) in enumerate(clients.items()):
        train, test = samples.train, samples.test
        if test is None:
            with naming(name):
                train, test = split_items(train, (seed, k))
        trains.append(train)
        tests.append(test)
    whole = as_dataset((ConcatDataset(trains), ConcatDataset(tests)))
    return whole, ([len(part) for part in trains], [len(part) for part in tests])


def _join_datasets(clients: Mapping[str, Dataset]) -> tuple[Dataset, Sizes]:
    """Data sets of equal form one after another; they are taken at their word."""
    check_datasets(clients)
    train, test = (
        _joined(parts) for parts in zip(*((dataset.train, dataset.test) for dataset in clients.values()), strict=True)
    )
    ranges = [dataset.value_range for dataset in clients.values() if dataset.value_range is not None]
    whole = replace(
        next(iter(clients.values())),
        train=train,
        test=test,
        fingerprint=None,
        value_range=(min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None,
        notes=tuple(dict.fromkeys(note for dataset in clients.values() for note in dataset.notes)),
    )
    return whole, (
        [len(dataset.train) for dataset in clients.values()],
        [len(dataset.test) for dataset in clients.values()],
    )


def _joined(parts: Iterable[Part]) -> Part:
    listed = list(parts)
    return Part(np.concatenate([part.inputs for part in listed]), np.concatenate([part.labels for part in listed]))
