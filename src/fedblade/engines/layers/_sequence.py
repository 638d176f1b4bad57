"""Layers for sequences: embeddings and LSTMs."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedblade.core.errors import Unsupported
from fedblade.engines.layers._base import Activation, Shared, rule


def check_embedding(table: nn.Embedding) -> None:
    """Refuse options that one table for all clients does not have."""
    if table.padding_idx is not None or table.max_norm is not None or table.scale_grad_by_freq:
        raise Unsupported("the model's embedding has padding_idx, max_norm or scale_grad_by_freq")


def check_lstm(net: nn.LSTM) -> None:
    """Refuse options that the loop over steps does not have."""
    if net.bidirectional or net.proj_size or net.dropout or not net.batch_first:
        raise Unsupported("the model's LSTM is bidirectional, projected, not batch_first or has dropout")


@rule(nn.Embedding)
def embedding(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Activation:
    """One table with the entries of all clients, and indices moved to the client's part of it."""
    table = cast("nn.Embedding", module)
    check_embedding(table)
    indices = inputs.split(shared.clients)
    offsets = torch.arange(shared.clients, device=indices.device) * table.num_embeddings
    moved = indices.long() + offsets.reshape(-1, *(1,) * (indices.dim() - 1))
    return Activation(functional.embedding(moved, tensors["weight"].flatten(0, 1)))


@rule(nn.LSTM)
def lstm(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Activation, shared: Shared) -> Any:
    """All steps of all clients' LSTMs: products of the inputs at once, those of the state step by step.

    Returns outputs [clients, batch, steps, hidden] and the last states [clients, layers, batch, hidden].
    """
    net = cast("nn.LSTM", module)
    check_lstm(net)
    values = inputs.split(shared.clients)
    hidden: list[Tensor] = []
    cells: list[Tensor] = []
    for layer in range(net.num_layers):
        values, last, cell = _layer(values, tensors, layer, net.hidden_size)
        hidden.append(last)
        cells.append(cell)
    return Activation(values), (Activation(torch.stack(hidden, 1)), Activation(torch.stack(cells, 1)))


def _layer(values: Tensor, tensors: Mapping[str, Tensor], layer: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    clients, batch, steps = values.shape[:3]
    inputs = torch.bmm(values.flatten(1, 2), tensors[f"weight_ih_l{layer}"].mT)
    if f"bias_ih_l{layer}" in tensors:
        inputs = inputs + (tensors[f"bias_ih_l{layer}"] + tensors[f"bias_hh_l{layer}"])[:, None]
    inputs = inputs.reshape(clients, batch, steps, 4 * width)
    recurrent = tensors[f"weight_hh_l{layer}"].mT
    hidden = cell = values.new_zeros(clients, batch, width)
    outputs: list[Tensor] = []
    for step in range(steps):
        gates = torch.baddbmm(inputs[:, :, step], hidden, recurrent)
        enter, forget, new, out = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = out.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, 2), hidden, cell
