"""The test samples of each client: the shared test set, a share of it, or samples held out of the client's data."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.streams import Stream, Streams
from fedblade.partitions._checks import Column, Ints, as_groups, as_labels, as_whole
from fedblade.partitions._drawn import DrawnSplit, Pool
from fedblade.partitions._split import NOBODY, TEST, Parts, Split, deal, gather

TEST_SPLITS = ("global", "matched", "matched_counts", "proportional", "holdout")
HOLDOUT_PERCENT = 30


@dataclass(frozen=True, eq=False)
class ClientTests:
    """The test samples of each client, and the split `train` for training.

    `source` names the set that the indices point into: `test`, or `train` for samples held out of the clients' data;
    the split `train` is then without them. `order` lists all test samples. Those of client k are at `offsets[k]` to
    `offsets[k + 1]`, or are drawn by `drawn`. Without `offsets` and `drawn`, every client is tested on all of `order`.
    """

    train: Parts
    source: Literal["test", "train"]
    order: Ints
    offsets: Ints | None = None
    drawn: DrawnSplit | None = None

    @property
    def is_shared(self) -> bool:
        """Whether all clients are tested on the same samples."""
        return self.offsets is None and self.drawn is None

    def part(self, client: int) -> Ints:
        """Test samples of a client, as indices into the set named by `source`; may be empty."""
        self.train.check_client(client)
        if self.drawn is not None:
            return self.drawn.part(client)
        return self.order if self.offsets is None else self.order[self.offsets[client] : self.offsets[client + 1]]

    def sizes(self) -> Ints:
        """Test samples per client [K]."""
        if self.drawn is not None:
            return self.drawn.sizes()
        if self.offsets is None:
            return np.full(self.train.num_clients, len(self.order))
        return np.diff(self.offsets)


def split_test(
    name: str, split: Parts, test_labels: Column, seed: int, *, test_groups: Column | None = None
) -> ClientTests:
    """Give each client of `split` its test samples.

    - `global`: every client gets the whole test set, stored once.
    - `matched`: each client draws n_k·|test|/|train| test samples, rounded to the nearest integer (half to even, at
      least 1), with the class mix of its training data by largest remainder (ties to the lower class). Clients draw
      independently, so several clients may have the same test sample. A class with too few test samples gives all.
    - `matched_counts`: as `matched`, but with as many samples of each class as the client trains on, if there are.
    - `proportional`: the test set is divided as the training set was, by class shares or by group (`test_groups`).
    - `holdout`: a random 30 % of each client's training samples, rounded down; `test_labels` are not used.

    The clients of a `DrawnSplit` also draw the test samples of both matched splits and of `holdout` on demand. Held-out
    samples are then taken from the data of all clients.
    """
    number = as_whole("seed", seed, 0)
    if name not in TEST_SPLITS:
        raise Misconfigured(f"unknown test split '{name}'.{nearest(name, TEST_SPLITS)}")
    if name == "holdout":
        return hold_out(split, number, HOLDOUT_PERCENT)
    labels, _ = as_labels("test labels", test_labels, split.num_classes)
    if name == "global":
        return ClientTests(split, "test", np.arange(len(labels)))
    if name in ("matched", "matched_counts"):
        return _matched(split, labels, number, len(split.labels) if name == "matched" else len(labels))
    return _proportional(split, labels, number, test_groups)


def hold_out(split: Parts, seed: int, percent: int, purpose: int = TEST) -> ClientTests:
    """Take a random `percent` of each client's samples, rounded down, out of its training part."""
    if isinstance(split, DrawnSplit):
        train, tests = split.hold_out(percent, seed, purpose)
        return ClientTests(train, "train", np.sort(tests.pool.members), drawn=tests)
    if not isinstance(split, Split):
        raise Misconfigured(f"a {type(split).__name__} cannot hold data out. Use test split 'global' or 'matched'.")
    return _hold_out(split, seed, percent, purpose)


def _hold_out(split: Split, seed: int, percent: int, purpose: int) -> ClientTests:
    owners, sizes = split.owners(), split.sizes()
    keys = Streams(seed).numpy(Stream.PARTITION, purpose).random(len(owners))
    shuffled = np.lexsort((keys, owners))
    rank = np.arange(len(owners)) - np.repeat(split.offsets[:-1], sizes)
    tested = np.zeros(len(owners), dtype=bool)
    tested[shuffled] = rank < np.repeat(sizes * percent // 100, sizes)
    train_offsets, test_offsets = (
        np.concatenate(([0], np.cumsum(np.bincount(owners[kept], minlength=split.num_clients))))
        for kept in (~tested, tested)
    )
    left = replace(split, order=split.order[~tested], offsets=train_offsets)
    return ClientTests(left, "train", split.order[tested], test_offsets)


def _matched(split: Parts, labels: Ints, seed: int, whole: int) -> ClientTests:
    """n_k·|test|/`whole` test samples for each client, with the class mix of its training data."""
    if isinstance(split, DrawnSplit):
        size = max(1, round(split.samples * len(labels) / whole))
        pool = Pool.of(labels, split.num_classes)
        tests = replace(split, labels=labels, pool=pool, samples=size, sample_seed=seed, purpose=TEST)
        return ClientTests(split, "test", np.arange(len(labels)), drawn=tests)
    by_class = np.argsort(labels, kind="stable")
    available = np.bincount(labels, minlength=split.num_classes)
    starts = np.cumsum(available) - available
    wanted = np.rint(split.sizes() * len(labels) / whole).astype(np.int64)
    counts = np.minimum(largest_remainder(np.maximum(wanted, 1), split.table()), available)
    offsets = np.concatenate(([0], np.cumsum(counts.sum(axis=1))))
    generator = Streams(seed).numpy(Stream.PARTITION, TEST)
    order = np.empty(offsets[-1], dtype=np.int64)
    for client, row in enumerate(counts):
        drawn = [
            by_class[starts[c] + generator.choice(available[c], row[c], replace=False)] for c in np.flatnonzero(row)
        ]
        if drawn:
            order[offsets[client] : offsets[client + 1]] = np.sort(np.concatenate(drawn))
    return ClientTests(split, "test", order, offsets)


def _proportional(split: Parts, labels: Ints, seed: int, test_groups: Column | None) -> ClientTests:
    if split.shares is not None:
        owners = deal(split.shares, labels, seed, TEST)
    elif split.groups is None or test_groups is None:
        raise Misconfigured(
            "test split 'proportional' needs the class shares of the split or the group of each test sample; both are "
            "missing. Pass test_groups=… or use 'matched' or 'global'."
        )
    else:
        owners = _by_group(split.groups, as_groups("test groups", test_groups, len(labels)))
    return ClientTests(split, "test", *gather(owners, split.num_clients))


def _by_group(client_groups: NDArray[Any], groups: NDArray[Any]) -> Ints:
    """The client [n] whose group each sample belongs to, or `NOBODY`; `client_groups` [K] ascend."""
    text = {array.dtype.kind if array.dtype.kind in "US" else "" for array in (client_groups, groups)}
    if len(text) > 1:
        raise Misconfigured(
            f"test groups have type {groups.dtype}, training groups have type {client_groups.dtype}. "
            f"Use the same names for groups in both sets."
        )
    position = np.searchsorted(client_groups, groups).clip(max=len(client_groups) - 1)
    return np.where(client_groups[position] == groups, position, NOBODY)


def largest_remainder(totals: Ints, table: Ints) -> Ints:
    """Divide `totals` [K] in the proportions of `table` [K, C]; every row of the result sums to its total.

    Every class gets the whole part of its quota. The rest goes one by one to the largest fractions, ties to the lower
    class. A row of zeros gets zeros.
    """
    size = np.maximum(table.sum(axis=1, keepdims=True), 1)
    quota = totals[:, None] * table
    counts = quota // size
    left = np.where(table.any(axis=1), totals - counts.sum(axis=1), 0)
    ranked = np.argsort(-(quota % size), axis=1, kind="stable")
    bonus = (np.arange(table.shape[1]) < left[:, None]).astype(np.int64)
    np.put_along_axis(counts, ranked, np.take_along_axis(counts, ranked, axis=1) + bonus, axis=1)
    return np.asarray(counts, dtype=np.int64)
