"""The states of a group of clients as bytes, and back.

The leaves of one name are copied together, because a group has many small ones; large leaves are handled one by one,
so that a group is not in memory twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from fedblade.core.safetensors_bytes import Layout, layout_of
from fedblade.core.tensorfile import decode_alike, encode_buffers
from fedblade.core.tree import Tree, leaf_bytes

_TOGETHER = 16 * 2**20
"""Bytes of the leaves of one name up to which they are copied together."""


@dataclass(frozen=True)
class TreesOfOneLayout:
    """The bytes of clients' trees that have the same names, types and shapes. They are on the CPU."""

    clients: tuple[int, ...]
    layout: Layout
    rows: Mapping[str, Sequence[memoryview]]

    def encoded(self, position: int) -> tuple[bytes, str]:
        """The tree of a client as the bytes of a safetensors file, and its digest."""
        return encode_buffers(self.layout, {name: rows[position] for name, rows in self.rows.items()}, {})


def trees_by_layout(trees: Mapping[int, Tree]) -> Iterator[TreesOfOneLayout]:
    """The bytes of clients' trees; trees of one layout are together."""
    clients: dict[Layout, list[int]] = {}
    for client, tree in trees.items():
        clients.setdefault(layout_of(tree), []).append(client)
    for layout, members in clients.items():
        rows = {name: _rows([trees[client][name] for client in members]) for name, _, _ in layout.leaves}
        yield TreesOfOneLayout(tuple(members), layout, rows)


def _rows(leaves: Sequence[torch.Tensor]) -> Sequence[memoryview]:
    size = leaves[0].numel() * leaves[0].element_size()
    if len(leaves) * size > _TOGETHER:
        return [leaf_bytes(leaf) for leaf in leaves]
    rows = leaf_bytes(torch.stack(tuple(leaves)))
    return [rows[position * size : (position + 1) * size] for position in range(len(leaves))]


def decode_group(contents: Sequence[bytes], digests: Sequence[str], first: Tree) -> list[Tree | None]:
    """The trees in the bytes of states; None for bytes that have another layout than `first`, or are damaged.

    The leaves of one name are views of one tensor.
    """
    layout = layout_of(first)
    found = [decode_alike(content, layout, digest) for content, digest in zip(contents, digests, strict=True)]
    together = {name: torch.empty((len(found), *shape), dtype=dtype) for name, dtype, shape in layout.leaves}
    for name, leaf in together.items():
        rows = leaf_bytes(leaf)
        size = len(rows) // max(len(found), 1)
        for position, buffers in enumerate(found):
            if buffers is not None:
                rows[position * size : (position + 1) * size] = buffers[name]
    by_name = {name: leaf.unbind() for name, leaf in together.items()}
    return [
        None if buffers is None else {name: leaves[position] for name, leaves in by_name.items()}
        for position, buffers in enumerate(found)
    ]
