"""The data of a group, cut into chunks that go through a pass side by side (`stacked.py` explains the words)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from torch import Tensor

from fedblade.core.passes import chunks
from fedblade.core.plan import IntArray


@dataclass(frozen=True)
class Chunk:
    """`size` samples of a client from its sample number `first` on; `client` is its position in the group."""

    client: int
    first: int
    size: int


@dataclass(frozen=True)
class ChunkBatch:
    """Chunks that go through a pass together, one in each slot, padded to `width` samples.

    Slots without a chunk of their own repeat the first chunk; their results are not used.
    """

    chunks: list[Chunk]
    width: int
    num_slots: int

    @property
    def in_slots(self) -> list[Chunk]:
        """The chunk of every slot."""
        return self.chunks + self.chunks[:1] * (self.num_slots - len(self.chunks))

    @property
    def is_full(self) -> bool:
        """Whether nothing is padded."""
        return min(chunk.size for chunk in self.chunks) == self.width

    def positions(self, starts: Sequence[int]) -> IntArray:
        """Positions of the samples of every slot [slots, width], if the samples of clients begin at `starts`.

        Padding repeats the first sample of its chunk.
        """
        slots = self.in_slots
        first, size = (np.array([getattr(chunk, name) for chunk in slots])[:, None] for name in ("first", "size"))
        begin = np.array([starts[chunk.client] for chunk in slots])[:, None]
        columns = np.arange(self.width)
        positions: IntArray = begin + first + np.where(columns < size, columns, 0)
        return positions


def cut_into_chunks(indices: Sequence[Tensor]) -> list[Chunk]:
    """The chunks of all clients, the longest first."""
    cut: list[Chunk] = []
    for client, of_client in enumerate(indices):
        sizes = [len(part) for part in chunks(of_client)]
        starts = accumulate([0, *sizes])
        cut += [Chunk(client, first, size) for first, size in zip(starts, sizes, strict=False) if size]
    return sorted(cut, key=lambda chunk: -chunk.size)


def batches_of_chunks(ordered: Sequence[Chunk], slots: int, least: int, *, fixed: bool) -> Iterator[ChunkBatch]:
    """Chunks that go through a pass together, from chunks with the longest first.

    If shapes are `fixed`, all batches have one shape, rounded up so that there are few shapes over a run. Otherwise a
    batch has chunks of about one length. `least` is the smallest width.
    """
    start, longest = 0, _rounded_up(ordered[0].size, 32)
    fixed_slots = min(slots, _rounded_up(len(ordered), 4))
    while start < len(ordered):
        width = longest if fixed else ordered[start].size
        taken = [chunk for chunk in ordered[start : start + slots] if fixed or 2 * chunk.size > width]
        start += len(taken)
        # In the order of the clients: where every client has one chunk, their models need not be copied.
        taken.sort(key=lambda chunk: chunk.client)
        yield ChunkBatch(taken, max(least, width), fixed_slots if fixed else len(taken))


def _rounded_up(number: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-number // step) * step
