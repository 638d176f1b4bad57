"""Tensors and a little metadata as a safetensors file: its bytes, and files that are written atomically.

Everything is checked when it is read.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write, write_atomic
from fedblade.core.safetensors_bytes import decode_safetensors, encode_safetensors
from fedblade.core.tree import Tree, tree_digest

_HEADER = "fedblade"
"""The only metadata key: the format writes several keys in random order, and equal contents must give equal bytes."""


def encode_tensors(tensors: Tree, metadata: Mapping[str, Any] | None = None) -> tuple[bytes, str]:
    """A tree as the bytes of a safetensors file with JSON metadata and a digest of both, and that digest.

    The same tensors and metadata give the same bytes.
    """
    facts = dict(metadata or {})
    digest = _digest(tensors, facts)
    return encode_safetensors(tensors, {_HEADER: json.dumps({"digest": digest, "facts": facts})}), digest


def decode_tensors(content: bytes, where: str) -> tuple[Tree, str]:
    """The tree in the bytes that `encode_tensors` gave, and their digest; changed bytes raise `CorruptFile`.

    `where` says in the error where the bytes were read.
    """
    try:
        tensors, metadata = decode_safetensors(content)
        header = dict(json.loads(metadata[_HEADER]))
    except (ValueError, LookupError, TypeError, RuntimeError, AttributeError, MemoryError) as error:
        raise CorruptFile(f"{where} cannot be read ({error})") from error
    _check_digest(tensors, header, where)
    return tensors, header["digest"]


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
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            header = dict(json.loads((file.metadata() or {}).get(_HEADER, "{}")))
            tensors = {name: _copied(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise
    except Exception as error:  # safetensors has error types of its own for incomplete files
        raise CorruptFile(f"'{path}' cannot be read ({error})") from error
    _check_digest(tensors, header, f"'{path}'")
    facts: dict[str, Any] = header.get("facts", {})
    return tensors, facts


def _copied(tensor: Tensor) -> Tensor:
    """A copy in memory of torch, because kernels round differently on memory of another alignment.

    NumPy copies, because torch would start threads of its own in every thread that reads.
    """
    copy = torch.empty_like(tensor)
    copy.reshape(-1).view(torch.uint8).numpy()[:] = tensor.reshape(-1).view(torch.uint8).numpy()
    return copy


def _check_digest(tensors: Tree, header: Mapping[str, Any], where: str) -> None:
    if header.get("digest") != _digest(tensors, header.get("facts", {})):
        raise CorruptFile(f"{where} is damaged: its contents do not match its digest")


def _digest(tensors: Tree, facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{tree_digest(tensors)}|{json.dumps(facts)}".encode()).hexdigest()
