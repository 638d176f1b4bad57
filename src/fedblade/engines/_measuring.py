"""Passes with the global model, and with the personal models of clients."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.one_client import OneClient
from fedblade.core.passes import PassData, PassModel
from fedblade.core.receive import personal_models
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass
from fedblade.core.tree import Tree, state_split
from fedblade.engines._loading import on_device
from fedblade.engines.base import MeasuredClient


def measure_global(
    alone: OneClient, server: ServerState, samples: Samples, indices: Tensor, passes: Sequence[DataPass]
) -> dict[str, Tree]:
    """Totals of the passes with the global model, over the samples at `indices`."""
    counts = torch.zeros(alone.problem.network.num_classes, dtype=torch.int64, device=indices.device)
    model = PassModel(server.params, server.buffers, server.fixed, counts, server.extra)
    return alone.run_passes(passes, model, PassData(samples, [indices]))


def measure_clients(
    clients: Clients,
    server: ServerState,
    group: Sequence[tuple[MeasuredClient, Tensor]],
    samples: Samples,
    passes: Sequence[DataPass],
) -> Iterator[tuple[int, Mapping[str, Tree]]]:
    """Each client's id and the totals of the passes with the client's personal model and prediction."""
    states = [on_device(clients.problem, client.state) for client, _ in group]
    models = personal_models(clients, server, [client.counts for client, _ in group], states)
    totals = clients.run_passes(passes, models, PassData(samples, [indices for _, indices in group]))
    by_client = state_split(clients.with_axis(totals), len(group))
    yield from zip((client.client for client, _ in group), by_client, strict=True)
