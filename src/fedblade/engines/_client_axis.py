"""The client axis of a group's tensors; a tensor that all clients share is a view that repeats it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedblade.core.tree import Tree


def with_client_axis(common: Tree, by_client: Sequence[Tree]) -> Tree:
    """The trees of clients with a client axis; a leaf that a client's tree lacks is the common one.

    Where no client's tree has a leaf, its client axis is a view that repeats the common leaf.
    """
    names = dict.fromkeys(name for tree in (common, *by_client) for name in tree)
    return {
        name: torch.stack([tree[name] if name in tree else common[name] for tree in by_client])
        if any(name in tree for tree in by_client)
        else repeated(common[name], len(by_client))
        for name in names
    }


def repeated(leaf: Tensor, clients: int) -> Tensor:
    """A client axis that is a view of one tensor."""
    return leaf.expand(clients, *leaf.shape)


def is_repeated(leaf: Tensor) -> bool:
    """Whether the client axis is a view that repeats one tensor, also if only one client is left on it."""
    return leaf.dim() > 0 and leaf.stride(0) == 0
