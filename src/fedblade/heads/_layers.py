"""Heads as layers of `torch.nn`, so that a trained head works where this library is not installed."""

import math

import torch
from torch import Tensor, nn

from fedblade.heads._directions import FLOOR


def linear_layer(weight: Tensor, bias: Tensor | None = None, *, trained: bool = True) -> nn.Linear:
    """A linear layer with copies of `weight [outputs, inputs]` and `bias`; one that is not trained has no gradients."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=bias is not None, device="meta")  # nothing is drawn for it
    layer.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.requires_grad_(trained)


def cosine_layers(vectors: Tensor, bias: Tensor | None = None, *, trained: bool = True) -> list[nn.Module]:
    """Layers for products of `vectors [classes, dim]` with the direction of the features, plus `bias`.

    `nn.RMSNorm` without weights gives the direction times sqrt(dim), so the linear layer is divided by sqrt(dim).
    """
    dim = vectors.shape[1]
    norm = nn.RMSNorm(dim, eps=FLOOR**2 / dim, elementwise_affine=False)
    return [norm, linear_layer(vectors / math.sqrt(dim), bias, trained=trained)]
