"""Random streams keyed by (seed, name, round, client, …): randomness is data, and no draw shifts another.

A stream is a fresh generator for its key. Two methods that share a key see the same numbers whatever else they
draw, so switching a term off cannot change batches, cohorts or initial weights.
"""

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Streams:
    """All random numbers of a run, derived from one seed.

    The names in use are `partition`, `init`, `etf`, `sampling`, `client`, `augment`, `method`, `server`, `eval` and
    `hardness`; a part that needs randomness of its own takes a name of its own.
    """

    seed: int

    def _sequence(self, name: str, key: tuple[int, ...]) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(name.encode()), *key))

    def numpy(self, name: str, *key: int) -> np.random.Generator:
        """NumPy generator of the stream `name` at `key`, e.g. `numpy("client", round, client, epoch)`."""
        return np.random.Generator(np.random.PCG64DXSM(self._sequence(name, key)))

    def torch(self, name: str, *key: int) -> "torch.Generator":
        """CPU torch generator of the stream `name` at `key`."""
        import torch

        return torch.Generator().manual_seed(self.integer(name, *key))

    def integer(self, name: str, *key: int) -> int:
        """A 63-bit seed for code that only takes an integer."""
        return int(self._sequence(name, key).generate_state(1, np.uint64)[0] >> 1)
