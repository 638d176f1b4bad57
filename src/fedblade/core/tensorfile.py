"""Tensors and a little metadata as a safetensors file: its bytes, and files that are written atomically.

Everything is checked when it is read.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write, write_atomic
from fedblade.core.safetensors_bytes import Layout, layout_of, read_header
from fedblade.core.tree import Tree, bytes_digest, leaf_bytes

_HEADER = "fedblade"
"""The only metadata key: the format writes several keys in random order, and equal contents must give equal bytes."""


def encode_tensors(tensors: Tree, metadata: Mapping[str, Any] | None = None) -> tuple[bytes, str]:
    """A tree as the bytes of a safetensors file with JSON metadata and a digest of both, and that digest.

    The same tensors and metadata give the same bytes.
    """
    buffers = {name: leaf_bytes(leaf) for name, leaf in tensors.items()}
    return encode_buffers(layout_of(tensors), buffers, metadata or {})


def encode_buffers(layout: Layout, buffers: Mapping[str, memoryview], facts: Mapping[str, Any]) -> tuple[bytes, str]:
    """As `encode_tensors`, for tensors that are given by their layout and bytes."""
    digest = _digest(layout, buffers, facts)
    return layout.file(buffers, _metadata(digest, facts)), digest


def decode_tensors(content: bytes, where: str) -> tuple[Tree, str]:
    """The tree in the bytes that `encode_tensors` gave, and their digest; changed bytes raise `CorruptFile`.

    `where` says in the error where the bytes were read.
    """
    try:
        layout, start, metadata = read_header(content)
        header = dict(json.loads(metadata[_HEADER]))
        buffers = layout.buffers(content, start)
    except (ValueError, LookupError, TypeError, RuntimeError, AttributeError, OverflowError) as error:
        raise CorruptFile(f"{where} cannot be read ({error})") from error
    if header.get("digest") != _digest(layout, buffers, header.get("facts", {})):
        raise CorruptFile(_damaged(where))
    tensors: Tree = {name: torch.empty(shape, dtype=dtype) for name, dtype, shape in layout.leaves}
    for name, tensor in tensors.items():
        leaf_bytes(tensor)[:] = buffers[name]
    return tensors, header["digest"]


def decode_alike(content: bytes, layout: Layout, digest: str) -> dict[str, memoryview] | None:
    """The tensors' bytes if `content` has this layout, no metadata and this digest, as is cheap to find out."""
    head = layout.head(_metadata(digest, {}))
    if not content.startswith(head) or len(content) != len(head) + layout.num_bytes:
        return None
    buffers = layout.buffers(content, len(head))
    return buffers if _digest(layout, buffers, {}) == digest else None


def write_tensors(path: Path, tensors: Tree, metadata: Mapping[str, Any] | None = None) -> None:
    """Save a tree with JSON metadata and a digest of both; raises `RunFailed` if the file cannot be written."""
    content, _ = encode_tensors(tensors, metadata)
    try:
        write_atomic(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def read_tensors(path: Path) -> tuple[Tree, dict[str, Any]]:
    """Load a tree and its metadata; an incomplete or changed file raises `CorruptFile`."""
    try:
        with _named_in_utf8(path) as name_in_utf8, safetensors.safe_open(name_in_utf8, "pt", device="cpu") as file:
            header = dict(json.loads((file.metadata() or {}).get(_HEADER, "{}")))
            tensors = {name: _copied(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise
    except Exception as error:  # safetensors has error types of its own for incomplete files
        raise CorruptFile(f"'{path}' cannot be read ({error})") from error
    facts: dict[str, Any] = header.get("facts", {})
    buffers = {name: leaf_bytes(tensor) for name, tensor in tensors.items()}
    if header.get("digest") != _digest(layout_of(tensors), buffers, facts):
        raise CorruptFile(_damaged(f"'{path}'"))
    return tensors, facts


def read_facts(path: Path) -> dict[str, Any]:
    """The metadata of a file alone. The tensors are not read, so nothing is checked; `CorruptFile` if it has none."""
    try:
        with _named_in_utf8(path) as name, safetensors.safe_open(name, framework="pt", device="cpu") as file:
            return dict(json.loads((file.metadata() or {})[_HEADER])["facts"])
    except Exception as error:  # safetensors has error types of its own for incomplete files
        raise CorruptFile(f"'{path}' cannot be read ({error})") from error


@contextlib.contextmanager
def _named_in_utf8(path: Path) -> Iterator[str]:
    """A name of the file that safetensors can open: it cannot open a path that is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield f"/dev/fd/{file.fileno()}"
    else:
        yield str(path)


def _copied(tensor: Tensor) -> Tensor:
    """A copy in memory of torch, because kernels round differently on memory of another alignment.

    NumPy copies, because torch would start threads of its own in every thread that reads.
    """
    copy = torch.empty_like(tensor)
    leaf_bytes(copy)[:] = leaf_bytes(tensor)
    return copy


def _metadata(digest: str, facts: Mapping[str, Any]) -> dict[str, str]:
    return {_HEADER: json.dumps({"digest": digest, "facts": facts})}


def _digest(layout: Layout, buffers: Mapping[str, memoryview], facts: Mapping[str, Any]) -> str:
    tensors = bytes_digest((description, buffers[name]) for name, description in layout.described)
    return hashlib.sha256(f"{tensors}|{json.dumps(facts)}".encode()).hexdigest()


def _damaged(where: str) -> str:
    return f"{where} is damaged: its contents do not match its digest"
