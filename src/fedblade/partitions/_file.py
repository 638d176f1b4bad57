"""Splits as files that other code bases can read and write."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_file
from fedblade.core.registry import partitions
from fedblade.partitions._base import Partitioner, Request
from fedblade.partitions._checks import Ints, as_flag, as_whole
from fedblade.partitions._split import NOBODY, Parts, Removal, Split

VERSION = 1
_log = logging.getLogger("fedblade.partitions")


@partitions.register("file")
@dataclass(frozen=True)
class File(Partitioner):
    """The split of the JSON file `path`: sample numbers of each client, as `save_split` writes them.

    `path` is relative to the current folder. The file must fit the data: if it has the numbers of samples, classes and
    clients, the samples of each class and the digest of the labels, they are compared. A warning says if the digest is
    missing. Samples that no client holds are not used.
    """

    path: str = ""
    allow_empty: bool = False

    def __post_init__(self) -> None:
        as_flag("allow_empty", self.allow_empty)

    def divide(self, request: Request) -> Split:
        if not self.path:
            raise Misconfigured("partition 'file' has no path. Give partition.path=split.json.")
        content = _read(Path(self.path))
        clients = _clients(self.path, content)
        _refuse_misfit(self.path, content, len(clients), request)
        split = request.by_owner(_owners(self.path, clients, len(request.labels)))
        empty = np.flatnonzero(split.sizes() == 0)
        if len(empty) and not self.allow_empty:
            raise Misconfigured(
                f"'{self.path}' leaves {len(empty)} clients without samples (first: client {empty[0]}). "
                f"Set partition.allow_empty=true or use another file."
            )
        # The client's samples of a class are its share, so that a test set is divided as the training set was.
        return replace(split, shares=split.table(), removal=_removal(self.path, content))


def save_split(path: Path, split: Parts) -> None:
    """Write the samples of every client to a JSON file that the partition `file` and other code bases can read.

    `clients` is a list: entry k holds the sample numbers of client k, counted from 0 in the order of the training set.
    `class_sizes` are the samples of class 0, 1, … `labels_sha256` is the SHA-256 of the labels [n] of the training set
    in their order, each as a signed 64-bit integer, low byte first. The file has `removal` if clients lose a class for
    a number of rounds. A missing folder is created.
    """
    if not isinstance(split, Split):
        raise Misconfigured(
            f"a {type(split).__name__} does not list the samples of its clients, so it cannot be saved. "
            f"Save a split of another partition."
        )
    facts: dict[str, Any] = {
        "format": "fedblade split",
        "version": VERSION,
        "num_samples": len(split.labels),
        "num_classes": split.num_classes,
        "num_clients": split.num_clients,
        "class_sizes": _class_sizes(split.labels, split.num_classes),
        "labels_sha256": labels_digest(split.labels),
    }
    if split.removal is not None:
        facts["removal"] = {"every": split.removal.every, "seed": split.removal.seed}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in facts.items()]
    clients = ",\n".join(f"  {json.dumps(part.tolist())}" for part in split.parts())
    text = "\n".join(("{", *lines, ' "clients": [', clients, " ]", "}", ""))
    write_file(path, text)


def labels_digest(labels: Ints) -> str:
    """SHA-256 of labels in their order, the same on every machine."""
    return hashlib.sha256(labels.astype("<i8", copy=False).tobytes()).hexdigest()


def _class_sizes(labels: Ints, num_classes: int) -> list[int]:
    return [int(size) for size in np.bincount(labels, minlength=num_classes)]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise Misconfigured(
            f"cannot read '{path}' (looked in {path.resolve().parent}): {error.strerror or error}. "
            f"Give the path of a split, e.g. of `fedblade partition --save split.json`."
        ) from error
    except (ValueError, RecursionError) as error:
        reason = "its lists are nested too deeply" if isinstance(error, RecursionError) else error
        raise Misconfigured(f"'{path}' is not usable JSON: {reason}. Give a file that save_split wrote.") from error
    if not isinstance(content, dict) or "clients" not in content:
        raise Misconfigured(
            f"'{path}' has no entry 'clients'. "
            f'Give the sample numbers of each client, e.g. {{"clients": [[0, 2], [1]]}}.'
        )
    if content.get("version", VERSION) != VERSION:
        raise Misconfigured(
            f"'{path}' has format version {content['version']}, expected {VERSION}. Save the split again, or update "
            f"fedblade."
        )
    return content


def _clients(path: str, content: Mapping[str, Any]) -> list[Ints]:
    """The sample numbers of each client; `clients` is a list, or an object with the keys "0" to "K-1"."""
    clients = content["clients"]
    if isinstance(clients, dict):
        names = [str(client) for client in range(len(clients))]
        if set(clients) != set(names):
            raise Misconfigured(
                f"'{path}' does not name its clients 0 to {len(clients) - 1}. Rename the clients, or give a list."
            )
        clients = [clients[name] for name in names]
    if not isinstance(clients, list) or not clients:
        raise Misconfigured(f"'{path}' lists no clients. Give one list of sample numbers per client.")
    return [_numbers(path, client, part) for client, part in enumerate(clients)]


def _numbers(path: str, client: int, part: object) -> Ints:
    try:
        if isinstance(part, list) and all(type(number) is int for number in part):
            return np.array(part, dtype=np.int64)
    except OverflowError:
        pass
    raise Misconfigured(f"'{path}': the samples of client {client} are not a list of whole numbers. Correct the file.")


def _refuse_misfit(path: str, content: Mapping[str, Any], num_clients: int, request: Request) -> None:
    """Refuse a file that was made for other data or another number of clients."""
    if num_clients != request.num_clients:
        raise Misconfigured(
            f"'{path}' has {num_clients} clients, but num_clients={request.num_clients}. "
            f"Set federation.num_clients={num_clients} or use another file."
        )
    facts = {
        "num_clients": num_clients,
        "num_samples": len(request.labels),
        "num_classes": request.num_classes,
        "class_sizes": _class_sizes(request.labels, request.num_classes),
        "labels_sha256": labels_digest(request.labels),
    }
    for name, fact in facts.items():
        if name in content and content[name] != fact:
            raise Misconfigured(
                f"'{path}' was made for other data: {name} is {_short(content[name])} in the file and "
                f"{_short(fact)} in the data. Load the data of the file, samples and classes in the same order, or "
                f"use another file."
            )
    if "labels_sha256" not in content:
        _log.warning("'%s' has no labels_sha256: it was not checked whether the file was made for these data", path)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _owners(path: str, clients: list[Ints], num_samples: int) -> Ints:
    """The client [n] of each sample, or `NOBODY`."""
    samples = np.concatenate(clients)
    holders = np.repeat(np.arange(len(clients)), [len(numbers) for numbers in clients])
    outside = np.flatnonzero((samples < 0) | (samples >= num_samples))
    if len(outside):
        raise Misconfigured(
            f"'{path}': client {holders[outside[0]]} holds sample {samples[outside[0]]}, but the samples are 0 to "
            f"{num_samples - 1}. Count samples from 0, or load the data set of the file."
        )
    times = np.bincount(samples, minlength=num_samples)
    if times.max(initial=0) > 1:
        twice = int(times.argmax())
        first, second = holders[samples == twice][:2]
        who = f"client {first} holds" if first == second else f"clients {first} and {second} hold"
        raise Misconfigured(
            f"'{path}': {who} sample {twice} more than once; expected it once. Give each sample to one client, once."
        )
    owners = np.full(num_samples, NOBODY, dtype=np.int64)
    owners[samples] = holders
    return owners


def _removal(path: str, content: Mapping[str, Any]) -> Removal | None:
    rule = content.get("removal")
    if rule is None:
        return None
    if not isinstance(rule, dict) or set(rule) != {"every", "seed"}:
        raise Misconfigured(
            f"'{path}': removal is {_short(rule)}, expected the numbers every and seed. Correct the file."
        )
    return Removal(
        as_whole(f"'{path}': removal.every", rule["every"], 1), as_whole(f"'{path}': removal.seed", rule["seed"], 0)
    )
