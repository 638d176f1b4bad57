"""The bytes of safetensors files, byte for byte those of the format's own library.

The library takes a tenth of a millisecond for a small state, which is much for a thousand clients in each round. What
depends on names, types and shapes alone is worked out once, in a `Layout`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import torch

from fedblade.core.tree import Tree, leaf_description

Leaf: TypeAlias = tuple[str, torch.dtype, torch.Size]
"""The name, the type and the shape of a tensor."""

_TYPES = {
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64", torch.float32: "F32",
    torch.uint32: "U32", torch.int32: "I32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint16: "U16",
    torch.int16: "I16", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip
"""The format's name of each type, in the order in which tensors are stored."""
_BY_NAME = {name: dtype for dtype, name in _TYPES.items()}
_ORDER = {dtype: number for number, dtype in enumerate(_TYPES)}
_LENGTH_BYTES = 8


@dataclass(frozen=True, eq=False)
class Layout:
    """Names, types and shapes of a tree, and what a file says about them. `leaves` and `parts` are in file order.

    `parts` are where the tensors are, counted from the end of the header; `described` is for `bytes_digest`.
    """

    leaves: tuple[Leaf, ...]
    parts: tuple[tuple[int, int], ...]
    header: str
    described: tuple[tuple[str, bytes], ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return self.parts[-1][1] if self.parts else 0

    def head(self, metadata: Mapping[str, str]) -> bytes:
        """The bytes of a file before its tensors, which begin at a multiple of eight bytes."""
        facts = json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))
        head = f'{{"__metadata__":{facts}{self.header}}}'.encode()
        head += b" " * (-len(head) % 8)
        return len(head).to_bytes(_LENGTH_BYTES, "little") + head

    def file(self, buffers: Mapping[str, memoryview], metadata: Mapping[str, str]) -> bytes:
        """The bytes of a file with these tensors."""
        return b"".join([self.head(metadata), *(buffers[name] for name, _, _ in self.leaves)])

    def buffers(self, content: bytes, start: int) -> dict[str, memoryview]:
        """The tensors in a file whose header ends at `start`."""
        data = memoryview(content)[start:]
        if len(data) != self.num_bytes:
            raise ValueError("it has another length than its header says")
        return {name: data[begin:end] for (name, _, _), (begin, end) in zip(self.leaves, self.parts, strict=True)}


def layout_of(tree: Tree) -> Layout:
    """The layout of a tree."""
    return _layout(tuple((name, leaf.dtype, leaf.shape) for name, leaf in tree.items()))


def read_header(content: bytes) -> tuple[Layout, int, dict[str, str]]:
    """The layout of a file, the end of its header, and its metadata; a damaged header raises an error of Python."""
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.loads(content[_LENGTH_BYTES:start])
    metadata: dict[str, str] = header.pop("__metadata__", {})
    leaves = ((name, _BY_NAME[entry["dtype"]], torch.Size(entry["shape"])) for name, entry in header.items())
    return _layout(tuple(leaves)), start, metadata


@lru_cache(maxsize=64)
def _layout(leaves: tuple[Leaf, ...]) -> Layout:
    ordered = tuple(sorted(leaves, key=lambda leaf: (_ORDER[leaf[1]], leaf[0].encode())))
    end, parts, header = 0, [], ""
    for name, dtype, shape in ordered:
        parts.append((end, end := end + dtype.itemsize * shape.numel()))
        entry = {"dtype": _TYPES[dtype], "shape": list(shape), "data_offsets": parts[-1]}
        header += f",{json.dumps(name, ensure_ascii=False)}:{json.dumps(entry, separators=(',', ':'))}"
    described = tuple((leaf[0], leaf_description(*leaf)) for leaf in sorted(leaves))
    return Layout(ordered, tuple(parts), header, described)
