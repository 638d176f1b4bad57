"""JSON and trees as bytes, to travel between processes without pickle."""

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
    """JSON as bytes; numbers of NumPy are plain ones."""
    return torch.frombuffer(
        bytearray(json.dumps(value, default=lambda number: number.item()).encode()), dtype=torch.uint8
    )


def decoded(content: Tensor) -> Any:
    """Inverse of `encoded`."""
    return json.loads(content.numpy().tobytes())


def leaves_of(tree: Mapping[str, Tensor]) -> Leaves:
    """What a receiver must know of a tree before it comes."""
    return [(name, str(leaf.dtype).removeprefix("torch."), list(leaf.shape)) for name, leaf in tree.items()]


def num_bytes(leaves: Leaves) -> int:
    """Bytes of a tree with these leaves."""
    return sum(_size(kind, shape) for _, kind, shape in leaves)


def as_bytes(tree: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """The bytes of all leaves, one after another."""
    parts = [leaf.detach().to(device).contiguous().reshape(-1).view(torch.uint8) for leaf in tree.values()]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def from_bytes(data: Tensor, leaves: Leaves) -> Tree:
    """Inverse of `as_bytes`. Each leaf has memory of its own: kernels round differently on other alignments."""
    tree: Tree = {}
    place = 0
    for name, kind, shape in leaves:
        end = place + _size(kind, shape)
        leaf = torch.empty(shape, dtype=getattr(torch, kind), device=data.device)
        leaf.reshape(-1).view(torch.uint8).copy_(data[place:end])
        tree[name], place = leaf, end
    return tree


def _size(kind: str, shape: list[int]) -> int:
    width: int = getattr(torch, kind).itemsize
    return width * torch.Size(shape).numel()
