"""FEMNIST and Shakespeare from LEAF's JSON files: each user is a client."""

import json
import string
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data._load import load
from fedblade.data._source import PARTS, Array, Block, Ints, PartName, Source, Task, stored_in
from fedblade.data._spec import Spec, declare

# LEAF's alphabet, in its order: the labels of Shakespeare are positions in it.
ALPHABET = "\n !\"&'(),-.0123456789:;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
_LENGTH = 80
_SIDE = 28
_HOW = "Make it with LEAF (github.com/TalwalkarLab/leaf): ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9."

Convert = Callable[[list[Any], list[Any]], tuple[Array, Ints]]


def _read(convert: Convert, class_names: tuple[str, ...], root: Path) -> Source | None:
    """The files train/*.json and test/*.json, in the folder or in its subfolder data/."""
    base = root / "data" if (root / "data").is_dir() else root
    files: dict[PartName, list[Path]] = {part: sorted((base / part).glob("*.json")) for part in PARTS}
    if not any(files.values()):
        return None
    for part, part_files in files.items():
        if not part_files:
            raise Misconfigured(f"'{base / part}' holds no .json files; expected LEAF's {part} part. Create it again.")

    def tasks(part: PartName) -> Iterator[Task]:
        for file in files[part]:
            for user, data in _users(file).items():
                yield partial(_block, file, user, data, convert)

    both = (*files["train"], *files["test"])
    return Source(base, both, tasks, class_names, lambda: stored_in("samples by user", both, "LEAF"))


def _users(file: Path) -> Mapping[str, Any]:
    """The table user -> {x, y} of a file."""
    try:
        content = json.loads(file.read_bytes())
        users, data = content["users"], content["user_data"]
        return {user: data[user] for user in users}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"'{file}' is damaged or not a LEAF file ({type(error).__name__}: {str(error)[:80]}); expected users and "
            f"user_data. Create it again."
        ) from error


def _block(file: Path, user: str, data: Any, convert: Convert) -> Block:
    try:
        x, y = data["x"], data["y"]
        if len(x) != len(y):
            raise ValueError(f"{len(x)} inputs and {len(y)} labels")
        inputs, labels = convert(x, y)
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(f"'{file}' has wrong data for user '{user}' ({error}). Create the file again.") from error
    return Block(inputs, labels, (user,) * len(labels))


def _convert_femnist(x: list[Any], y: list[Any]) -> tuple[Array, Ints]:
    """784 numbers in [0, 1] (white is 1) as the bytes that LEAF made them from."""
    pixels, labels = np.asarray(x, dtype=np.float64).reshape(-1, 1, _SIDE, _SIDE), np.asarray(y)
    if len(pixels) != len(labels):
        raise ValueError(f"pictures of {np.size(x) // max(1, len(labels))} pixels; expected {_SIDE * _SIDE}")
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("pixels outside 0 to 1")
    if labels.dtype.kind not in "iu" or (len(labels) and not (labels.min() >= 0 and labels.max() < 62)):
        raise ValueError("labels that are not integers from 0 to 61")
    return np.rint(pixels * 255).astype(np.uint8), labels.astype(np.int64)


def _convert_shakespeare(x: list[Any], y: list[Any]) -> tuple[Array, Ints]:
    """Strings of 80 characters, and the characters that follow, as positions in the alphabet."""
    position = {letter: i for i, letter in enumerate(ALPHABET)}
    if any(len(text) != _LENGTH for text in x):
        raise ValueError(f"a text that is not {_LENGTH} characters long")
    unknown = {letter for text in (*x, *y) for letter in text} - set(position)
    if unknown:
        raise ValueError(f"characters outside LEAF's alphabet: {sorted(unknown)[:3]}")
    inputs = np.asarray([[position[letter] for letter in text] for text in x], dtype=np.uint8).reshape(-1, _LENGTH)
    return inputs, np.asarray([position[letter] for letter in y], dtype=np.int64)


_FEMNIST = declare(
    Spec(
        name="femnist",
        formats=(
            partial(_read, _convert_femnist, tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)),
        ),
        wanted="LEAF's data/train/*.json and data/test/*.json",
        how=_HOW,
    )
)
_SHAKESPEARE = declare(
    Spec(
        name="shakespeare",
        formats=(partial(_read, _convert_shakespeare, tuple(ALPHABET)),),
        wanted="LEAF's data/train/*.json and data/test/*.json",
        how=_HOW,
        unit=1.0,
    )
)


@datasets.register()
def femnist(path: str = "") -> Dataset:
    """FEMNIST: 28×28 grey handwriting, 62 characters; groups are the writers. Pixels lie in [0, 1] as in LEAF."""
    return load(_FEMNIST, path)


@datasets.register()
def shakespeare(path: str = "") -> Dataset:
    """Shakespeare: predict the next character from 80 characters, out of an alphabet of 80; groups are the roles.

    Inputs [80] are positions in LEAF's alphabet.
    """
    return load(_SHAKESPEARE, path)
