"""Tensors and a little metadata in one safetensors file, written atomically and checked when read."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from fedblade.core.errors import CorruptFile
from fedblade.core.files import cannot_write, write_atomic
from fedblade.core.tree import Tree, tree_digest

_HEADER = "fedblade"
"""The only metadata key: the format writes several keys in random order, and equal contents must give equal bytes."""


def write_tensors(path: Path, tensors: Tree, metadata: Mapping[str, Any] | None = None) -> None:
    """Save a tree with JSON metadata and a digest of both; raises `RunFailed` if the file cannot be written.

    The same tensors and metadata give the same bytes.
    """
    plain, facts = _unshared(tensors), dict(metadata or {})
    content = save(plain, {_HEADER: json.dumps({"digest": _digest(plain, facts), "facts": facts})})
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
    if header.get("digest") != _digest(tensors, facts):
        raise CorruptFile(f"'{path}' is damaged: its contents do not match its digest")
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
    copy.reshape(-1).view(torch.uint8).numpy()[:] = tensor.reshape(-1).view(torch.uint8).numpy()
    return copy


def _digest(tensors: Tree, facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{tree_digest(tensors)}|{json.dumps(facts)}".encode()).hexdigest()


def _unshared(tensors: Tree) -> Tree:
    """Contiguous tensors on the CPU; leaves that share memory are copied, because the format refuses them."""
    seen: set[int] = set()
    plain: Tree = {}
    for name, leaf in tensors.items():
        tensor = leaf.detach().cpu().contiguous()
        address = tensor.untyped_storage().data_ptr()
        plain[name] = tensor.clone() if address in seen else tensor
        seen.add(address)
    return plain
