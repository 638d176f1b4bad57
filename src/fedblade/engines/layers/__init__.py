"""Layers with a client axis: the same module for every client of a group, each with its own tensors.

A rule is registered for a type of module and computes it for all clients at once. Activations come in two layouts:
*split* [clients, batch, …] and *folded* [batch, clients·channels, height, width], in which convolutions and
normalisation over channels see more channels and nothing else.
"""

from fedblade.engines.layers import (  # noqa: F401 - importing them registers their rules
    _batch_norm,
    _convolution,
    _elementwise,
    _group_norm,
    _linear,
    _pooling,
    _sequence,
)
from fedblade.engines.layers._base import RULES, Lane, Shared, rule

__all__ = ["RULES", "Lane", "Shared", "rule"]
