"""Features of the received model at the measured samples: one computation for all clients that received this model."""

import torch
from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.passes import batch_of_one_model, chunks
from fedblade.core.problem import LocalModel, Received
from fedblade.core.samples import Samples
from fedblade.core.tree import Tree

_MOST_BYTES = 2**28
"""Bytes of features that are kept for a round. Above, every client computes those of a batch when it needs them."""


class ReceivedFeatures:
    """Keeps the features of the last body that it was asked for; clients of one round have received the same one."""

    def __init__(self) -> None:
        self._body: Tree = {}
        self._features: Tensor | None = None

    @torch.no_grad()
    def at(self, clients: Clients, received: Received, samples: Samples, indices: Tensor) -> Tensor | None:
        """Features [samples, dim] at `indices`, which must be the same in every call.

        None if the clients received different bodies, if features depend on the batch, or if they are too many.
        """
        network = clients.problem.network
        body = network.body_tensors(received.anchor, received.fixed, received.buffers)
        too_many = len(indices) * network.dim * samples.dtype.itemsize > _MOST_BYTES
        if network.takes_batch_statistics or too_many or not all(map(clients.is_common, body.values())):
            return None
        one, _ = clients.at(0, received, LocalModel({}, {}, {}))
        body = network.body_tensors(one.anchor, one.fixed, one.buffers)
        if self._features is None or not _is_equal(body, self._body):
            parts = chunks(indices, batch_of_one_model(network, samples))
            self._body, self._features = body, torch.cat([_features(clients, one, samples, part) for part in parts])
        return self._features


def _features(clients: Clients, received: Received, samples: Samples, indices: Tensor) -> Tensor:
    """Features [batch, dim] of the model that one client received."""
    inputs, _ = clients.read(samples, indices.reshape((1,) * clients.axes + (-1,)), None)
    features, _ = clients.features(received.anchor, received.fixed, received.buffers, inputs, None, training=False)
    return features.flatten(0, -2)


def _is_equal(first: Tree, second: Tree) -> bool:
    return first.keys() == second.keys() and all(torch.equal(leaf, second[name]) for name, leaf in first.items())
