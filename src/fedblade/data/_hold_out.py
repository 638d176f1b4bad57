"""Test samples for data that came without: a fifth of the training samples."""

from dataclasses import replace

import numpy as np

from fedblade.core.streams import Stream, Streams
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array

_EVERY = 5


def held_out_positions(labels: Array, key: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
    """The positions of the samples that stay for training, and of those to test on; both ascend.

    A fifth is tested on, in the mix of the labels [n]: rounded down, but at least one sample; a single sample stays for
    training. `key` is a seed and the number of a client. The samples are shuffled and sorted by class, and one is taken
    in the middle of each of m equal stretches, so each class gives its share up to one sample.
    """
    count = len(labels)
    wanted = max(1, count // _EVERY) if count > 1 else 0
    shuffled = Streams(key[0]).numpy(Stream.CLIENT_TESTS, key[1]).permutation(count)
    classes = np.unique(labels, return_inverse=True)[1].reshape(-1)
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    tested = np.zeros(count, dtype=bool)
    tested[by_class[(2 * np.arange(wanted) + 1) * count // (2 * max(1, wanted))]] = True
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def hold_out_test(samples: OwnSamples, key: tuple[int, int] = (0, 0)) -> OwnSamples:
    """The samples with a test part: as given, else a fifth of the training samples; `key` is that of the draw."""
    if samples.x_test is not None:
        return samples
    train, test = held_out_positions(samples.y, key)
    return replace(samples, x=samples.x[train], y=samples.y[train], x_test=samples.x[test], y_test=samples.y[test])


def held_out_note(tested: int, count: int) -> str:
    """The line for the user about `count` samples of which so many are held out."""
    return f"test: none given, so {tested:,} of {count:,} samples are held out, in the mix of their labels"
