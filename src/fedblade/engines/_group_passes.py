"""Passes over the data of a group at once, with one model per client or one model for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.passes import PassBatch, PassData, PassModel
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree
from fedblade.engines._capture import HIDDEN_ROUND
from fedblade.engines._chunks import Chunk, ChunkBatch, batches_of_chunks, cut_into_chunks
from fedblade.engines._client_axis import is_repeated, repeated
from fedblade.engines._replay import Replays

GPU_SLOTS = 16
"""Chunks that pass together on a GPU, of any clients: one shape for all, so that libraries plan once."""
CPU_SLOTS = 32
"""The largest number of chunks that pass together on a CPU, where chunks of one length do."""
MOST_INPUT_BYTES = 2**22
"""Bytes of inputs that pass together on a CPU. The outputs of layers are many times larger, and the system takes blocks
above 32 MB back as soon as they are free: page faults then take most of the time."""
MOST_BYTES = 2**28
"""Bytes that passes may return at a time: covariances of classes are large."""
_TENSORS = ("params", "buffers", "fixed", "client", "counts", "server", "anchor", "anchor_buffers")
"""The fields of a `PassModel` that are made of tensors."""


@dataclass(frozen=True)
class GroupPasses:
    """Runs passes for groups; remembers how many bytes the passes of a chunk return, and what a GPU has captured."""

    _replays: Replays = field(default_factory=Replays)
    _bytes_per_chunk: dict[tuple[str, ...], int] = field(default_factory=dict)

    @torch.no_grad()
    def run(self, clients: Clients, passes: Sequence[DataPass], models: PassModel, data: PassData) -> dict[str, Tree]:
        """Totals of the passes over the samples of each client, in float64 and with a client axis."""
        chunks = cut_into_chunks(data.indices) if passes else []
        if not chunks:
            return {}
        totals: dict[str, Tree] = {}
        on_gpu = data.samples.labels.is_cuda
        least = 2 if clients.problem.network.skips_singletons else 1
        slots = self._num_slots(clients, passes, models, data, chunks[0])
        for batch in batches_of_chunks(chunks, slots, least, fixed=on_gpu):
            for name, tree in self._run_batch(clients, passes, models, data, batch).items():
                _add(totals.setdefault(name, _zeros(tree, len(data.indices))), tree, batch.chunks)
        return totals

    def _num_slots(
        self, clients: Clients, passes: Sequence[DataPass], models: PassModel, data: PassData, chunk: Chunk
    ) -> int:
        """Chunks that pass together: fewer where the passes return much, which a chunk of two samples shows."""
        key = tuple(data_pass.name for data_pass in passes)
        if key not in self._bytes_per_chunk:
            small = ChunkBatch([replace(chunk, size=min(2, chunk.size))], 2, 1)
            inputs = _inputs(models, replace(data, draws=None), small)
            trees = _run_inputs(clients, passes, models, data.samples, inputs)
            self._bytes_per_chunk[key] = sum(leaf.nbytes for tree in trees.values() for leaf in tree.values())
        most = GPU_SLOTS if data.samples.labels.is_cuda else _cpu_slots(data.samples, chunk)
        return min(most, max(1, MOST_BYTES // max(1, self._bytes_per_chunk[key])))

    def _run_batch(
        self, clients: Clients, passes: Sequence[DataPass], models: PassModel, data: PassData, batch: ChunkBatch
    ) -> dict[str, Tree]:
        """Every pass over the chunks of a batch, with an axis of slots in front; captured where it can be."""
        inputs = _inputs(models, data, batch)
        read_by_host = data.samples.reader is not None and inputs["draws"] is not None
        if not data.all_indices.is_cuda or read_by_host or any(data_pass.by_round for data_pass in passes):
            return _run_inputs(clients, passes, models, data.samples, inputs)
        key = (id(data.samples.labels), models.logits, tuple(data_pass.of for data_pass in passes))
        hidden = replace(models, round=HIDDEN_ROUND)
        trees: dict[str, Tree] = self._replays.call(
            key, lambda stored: _run_inputs(clients, passes, hidden, data.samples, stored), inputs
        )
        return trees


def _cpu_slots(samples: Samples, chunk: Chunk) -> int:
    """Chunks of this size that pass together on a CPU."""
    bytes_per_chunk = chunk.size * samples.inputs[0].numel() * samples.dtype.itemsize
    return max(1, min(CPU_SLOTS, MOST_INPUT_BYTES // max(1, bytes_per_chunk)))


def _run_inputs(
    clients: Clients, passes: Sequence[DataPass], models: PassModel, samples: Samples, inputs: Mapping[str, Any]
) -> dict[str, Tree]:
    """Every pass over tensors of `_inputs`; `models` has the prediction and the round."""
    models = _pick_clients(replace(models, **inputs["models"]), inputs["clients"])
    values, labels = clients.read(samples, inputs["indices"], inputs["draws"])
    return clients.run_batch(passes, models, PassBatch(values, labels, inputs["mask"], inputs["anchor_features"]))


def _inputs(models: PassModel, data: PassData, batch: ChunkBatch) -> dict[str, Any]:
    """A batch of chunks in tensors: models, which client each slot has, samples, their draws, and which are real."""
    device, chunks = data.all_indices.device, batch.in_slots
    positions = torch.from_numpy(batch.positions(data.starts)).to(device)
    clients = [chunk.client for chunk in chunks]
    sizes = torch.tensor([chunk.size for chunk in chunks])[:, None]
    return {
        "models": {name: getattr(models, name) for name in _TENSORS},
        "clients": None if clients == list(range(len(models.counts))) else torch.tensor(clients).to(device),
        "indices": data.all_indices[positions],
        "draws": None if data.all_draws is None else data.all_draws[positions],
        "anchor_features": _anchor_features(data, batch),
        "mask": None if batch.is_full else (torch.arange(batch.width) < sizes).to(device),
    }


def _anchor_features(data: PassData, batch: ChunkBatch) -> Tensor | None:
    """Known features of the received model at the samples of every slot, [slots, width, dim]."""
    if data.anchor_features is None:
        return None
    positions = torch.from_numpy(batch.positions([0] * len(data.indices)))
    return data.anchor_features[positions.to(data.anchor_features.device)]


def _pick_clients(models: PassModel, clients: Tensor | None) -> PassModel:
    """The models at these positions of the client axis, which may repeat; None picks every client once."""
    if clients is None:
        return models

    def pick(tree: Mapping[str, Tensor]) -> Tree:
        return {
            name: repeated(leaf[0], len(clients)) if is_repeated(leaf) else leaf[clients] for name, leaf in tree.items()
        }

    return replace(
        models,
        params=pick(models.params),
        buffers=pick(models.buffers),
        fixed=pick(models.fixed),
        client={name: pick(tree) for name, tree in models.client.items()},
        counts=models.counts[clients],
        anchor=pick(models.anchor),
        anchor_buffers=pick(models.anchor_buffers),
    )


def _zeros(tree: Tree, clients: int) -> Tree:
    return {key: leaf.new_zeros(clients, *leaf.shape[1:], dtype=torch.float64) for key, leaf in tree.items()}


def _add(totals: Tree, tree: Tree, chunks: Sequence[Chunk]) -> None:
    """Add the numbers of each chunk to its client, one after another, so that the order depends on no device."""
    for key, leaf in tree.items():
        for slot, chunk in enumerate(chunks):
            totals[key][chunk.client].add_(leaf[slot])
