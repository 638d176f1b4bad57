"""Random streams keyed by (seed, name, round, client, …): randomness is data, and no draw shifts another.

A stream is a fresh generator for its key. Two methods that share a key see the same numbers whatever else they
draw, so switching a term off cannot change batches, cohorts or initial weights.
"""

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


class Stream(StrEnum):
    """Names of the library's streams. A part of a user's own may take any other string as its name.

    The value is part of the key that numbers are drawn from: another value means other results.
    """

    PARTITION = "partition"
    """Which client holds which samples."""
    CLIENT_TESTS = "client_tests"
    """The samples that are held out for tests where a client gives no test samples."""
    HARDNESS = "hardness"
    """Cohorts that the hardness of a split is estimated from."""
    EVALUATION_ORDER = "eval"
    """The order of the test samples."""
    MEASURED_CLIENTS = "measured"
    """The clients whose personal models are measured, where there are too many to measure all."""
    INIT = "init"
    """Initial weights: key 0 for the body, key 1 for the head."""
    ETF = "etf"
    """The simplex ETF of a head."""
    ORTHONORMAL = "ortho"
    """The orthonormal class vectors of a head."""
    PROTOTYPES = "prototypes"
    """The initial prototypes of a head."""
    GENERATOR = "generator"
    """Initial weights of a server's generator."""
    SAMPLING = "sampling"
    """The cohort of a round."""
    UNSEEN = "unseen"
    """The clients that never train and are only evaluated."""
    DROPOUT = "dropout"
    """Whether a client that is asked in a round answers."""
    PARTIAL_WORK = "partial_work"
    """Whether a client does only a part of its steps in a round, and how many."""
    BATCHES = "client"
    """The order of a client's samples in an epoch."""
    AUGMENTATION = "augment"
    """Augmentation of the samples of an epoch."""
    METHOD = "method"
    """Numbers that a method asked for, for each sample of an epoch."""
    LAYERS = "layers"
    """The seed for layers that draw numbers themselves, such as dropout."""
    FIXED_ORDER = "pass"
    """The order in which passes see a client's samples, the same in all rounds."""
    PROTOTYPE_AUGMENTATION = "proto"
    """Augmentation of the samples of an augmented pass, such as one for prototypes."""
    SERVER = "server"
    """What the server draws in a round."""


@dataclass(frozen=True)
class Streams:
    """All random numbers of a run, derived from one seed.

    `Stream` has the names in use. A part that needs randomness of its own takes a name of its own.
    """

    seed: int

    def _sequence(self, name: str, key: tuple[int, ...]) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(name.encode()), *key))

    def numpy(self, name: str, *key: int) -> np.random.Generator:
        """NumPy generator of the stream `name` at `key`, e.g. `numpy(Stream.BATCHES, round, client, epoch)`."""
        return np.random.Generator(np.random.PCG64DXSM(self._sequence(name, key)))

    def torch(self, name: str, *key: int) -> "torch.Generator":
        """CPU torch generator of the stream `name` at `key`."""
        import torch

        return torch.Generator().manual_seed(self.integer(name, *key))

    def integer(self, name: str, *key: int) -> int:
        """A 63-bit seed for code that only takes an integer."""
        return int(self._sequence(name, key).generate_state(1, np.uint64)[0] >> 1)
