"""Layers with a client axis: the same module for every client of a group, with each client's tensors.

A rule is registered for a type of module and computes it for all clients at once. Activations have one of two layouts:
*split* [clients, batch, …], or *folded* [batch, clients·channels, height, width]. To convolutions and normalisation,
folded maps are maps with more channels.
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
from fedblade.engines.layers._base import RULES, Activation, Shared, rule
from fedblade.engines.layers._body import StackedBody

__all__ = ["RULES", "Activation", "Shared", "StackedBody", "rule"]
