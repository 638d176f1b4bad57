"""Trees: flat dictionaries from dotted names to tensors, and the arithmetic that methods use."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

Tree: TypeAlias = dict[str, Tensor]
"""Tensors by name."""
State: TypeAlias = dict[str, Tree]
"""Named trees, such as a client's control variates and momentum."""


def tree_map(function: Callable[..., Tensor], first: Mapping[str, Tensor], *rest: Mapping[str, Tensor]) -> Tree:
    """Apply `function` leaf by leaf; every tree must have the names of the first."""
    for other in rest:
        if other.keys() != first.keys():
            odd = sorted(first.keys() ^ other.keys())
            raise KeyError(f"trees differ in the names {odd[:4]}")
    return {name: function(leaf, *(other[name] for other in rest)) for name, leaf in first.items()}


def tree_zeros(tree: Mapping[str, Tensor]) -> Tree:
    """Zeros of the same shapes."""
    return tree_map(torch.zeros_like, tree)


def tree_clone(tree: Mapping[str, Tensor]) -> Tree:
    """Detached copies."""
    return tree_map(lambda leaf: leaf.detach().clone(), tree)


def tree_select(tree: Mapping[str, Tensor], names: Iterable[str]) -> Tree:
    """The leaves with these names, in the order of the tree."""
    wanted = frozenset(names)
    return {name: leaf for name, leaf in tree.items() if name in wanted}


def tree_part(tree: Mapping[str, Tensor], clients: slice) -> Tree:
    """Views of some positions of the first axis."""
    return {name: leaf[clients] for name, leaf in tree.items()}


def tree_split(tree: Mapping[str, Tensor], clients: int) -> list[Tree]:
    """The trees of single clients, as views of a tree with a client axis."""
    by_name = {name: leaf.unbind() for name, leaf in tree.items()}
    return [{name: leaves[client] for name, leaves in by_name.items()} for client in range(clients)]


def state_split(state: Mapping[str, Tree], clients: int) -> list[State]:
    """The states of single clients, as views of a state with a client axis."""
    by_name = {name: tree_split(tree, clients) for name, tree in state.items()}
    return [{name: trees[client] for name, trees in by_name.items()} for client in range(clients)]


def tree_dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """Inner product over all leaves, in float64."""
    products = tree_map(lambda x, y: (x.double() * y.double()).sum(), a, b)
    return torch.stack(list(products.values())).sum() if products else torch.zeros((), dtype=torch.float64)


def tree_norm(tree: Mapping[str, Tensor]) -> Tensor:
    """Euclidean norm over all leaves, in float64."""
    return tree_dot(tree, tree).sqrt()


def tree_bytes(tree: Mapping[str, Tensor]) -> int:
    """Bytes of all leaves."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree.values())


def tree_is_finite(tree: Mapping[str, Tensor]) -> bool:
    """Whether no floating-point leaf holds NaN or infinity."""
    return all(bool(torch.isfinite(leaf).all()) for leaf in tree.values() if leaf.is_floating_point())


def tree_digest(tree: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes: equal digests mean bit-identical trees."""
    return bytes_digest(
        (leaf_description(name, leaf.dtype, leaf.shape), leaf_bytes(leaf)) for name, leaf in sorted(tree.items())
    )


def bytes_digest(leaves: Iterable[tuple[bytes, memoryview]]) -> str:
    """The `tree_digest` of leaves that are given by their descriptions and bytes, in the order of their names."""
    digest = hashlib.sha256()
    for description, content in leaves:
        digest.update(description)
        digest.update(content)
    return digest.hexdigest()


def leaf_description(name: str, dtype: torch.dtype, shape: torch.Size) -> bytes:
    """What a digest covers besides the bytes of a leaf."""
    return f"{name}|{dtype}|{tuple(shape)}|".encode()


def leaf_bytes(leaf: Tensor) -> memoryview:
    """The bytes of a tensor, row by row: the tensor's own memory if it is on the CPU and contiguous."""
    tensor = leaf.detach()
    if not (tensor.is_cpu and tensor.is_contiguous()):
        tensor = tensor.cpu().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().data
