"""JSON and trees as bytes that travel between processes without pickle."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedblade.core.tree import Tree

Json = dict[str, Any]
Leaves = Sequence[tuple[str, str, list[int]]]
"""Name, type and shape of every leaf of a tree."""


def encoded(value: Any) -> Tensor:
    """A value as the bytes of its JSON; NumPy numbers become plain numbers."""
    return torch.frombuffer(
        bytearray(json.dumps(value, default=lambda number: number.item()).encode()), dtype=torch.uint8
    )


def decoded(content: Tensor) -> Any:
    """Inverse of `encoded`."""
    return json.loads(content.numpy().tobytes())


def leaves_of(tree: Mapping[str, Tensor]) -> Leaves:
    """Name, type and shape of every leaf, which the receiver of a tree needs beforehand."""
    return [(name, str(leaf.dtype).removeprefix("torch."), list(leaf.shape)) for name, leaf in tree.items()]


def num_bytes(leaves: Leaves) -> int:
    """Bytes of a tree with these leaves."""
    return sum(_size(dtype, shape) for _, dtype, shape in leaves)


def as_bytes(tree: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """The bytes of all leaves, one after another."""
    parts = [leaf.detach().to(device).contiguous().reshape(-1).view(torch.uint8) for leaf in tree.values()]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def from_bytes(data: Tensor, leaves: Leaves) -> Tree:
    """Inverse of `as_bytes`. Leaves are copied, because kernels round differently on memory with another alignment."""
    tree: Tree = {}
    begin = 0
    for name, dtype, shape in leaves:
        end = begin + _size(dtype, shape)
        leaf = torch.empty(shape, dtype=getattr(torch, dtype), device=data.device)
        leaf.reshape(-1).view(torch.uint8).copy_(data[begin:end])
        tree[name], begin = leaf, end
    return tree


def _size(dtype: str, shape: list[int]) -> int:
    width: int = getattr(torch, dtype).itemsize
    return width * torch.Size(shape).numel()
