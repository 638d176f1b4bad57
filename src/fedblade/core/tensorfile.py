"""Tensors and a little metadata in one safetensors file, written atomically and checked when read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write, write_atomic
from fedblade.core.tree import Tree, tree_digest


def write_tensors(path: Path, tensors: Tree, metadata: Mapping[str, Any] | None = None) -> None:
    """Save a tree with JSON metadata and a digest of its contents; `RunFailed` if it cannot be written."""
    plain = _unshared(tensors)
    text = json.dumps(dict(metadata or {}))
    content = save(plain, {"digest": _digest(plain, text), "metadata": text})
    try:
        write_atomic(path, content)
    except OSError as error:
        raise cannot_write(path, error) from error


def read_tensors(path: Path) -> tuple[Tree, dict[str, Any]]:
    """Load a tree and its metadata; a torn or altered file raises `CorruptFile`."""
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            # Cloned into torch's own memory: kernels round differently on buffers that are aligned differently.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        raise
    except Exception as error:  # safetensors raises its own error types for torn files
        raise CorruptFile(f"'{path}' cannot be read ({error})") from error
    text = header.get("metadata", "")
    if header.get("digest") != _digest(tensors, text):
        raise CorruptFile(f"'{path}' is damaged: its contents do not match its digest")
    metadata: dict[str, Any] = json.loads(text)
    return tensors, metadata


def _digest(tensors: Tree, text: str) -> str:
    return hashlib.sha256(f"{tree_digest(tensors)}|{text}".encode()).hexdigest()


def _unshared(tensors: Tree) -> Tree:
    """Contiguous tensors on the CPU; leaves that share memory are copied, because the format refuses them."""
    seen: set[int] = set()
    plain: Tree = {}
    for name, leaf in tensors.items():
        own = leaf.detach().cpu().contiguous()
        place = own.untyped_storage().data_ptr()
        plain[name] = own.clone() if place in seen else own
        seen.add(place)
    return plain
