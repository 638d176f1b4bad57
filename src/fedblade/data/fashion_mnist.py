"""Fashion-MNIST from IDX files (plain or gzip), also where Debian's package puts them, or from hub tables."""

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._columns import Columns
from fedblade.data._dataset import Dataset
from fedblade.data._load import load
from fedblade.data._pictures import Fit
from fedblade.data._source import Array, Block, PartName, Source, Task, refuse_twins, stored_in
from fedblade.data._spec import Hub, Spec, declare
from fedblade.data._tables import read_tables

_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_STEMS: dict[PartName, str] = {"train": "train", "test": "t10k"}
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_UNSIGNED_BYTES = 8


def _find(root: Path, part: PartName, kind: str) -> Path:
    """The IDX file of a part, plain or compressed; the plain name if neither exists."""
    plain = root / f"{_STEMS[part]}-{kind}-ubyte"
    packed = plain.with_name(f"{plain.name}.gz")
    return packed if packed.is_file() and not plain.is_file() else plain


def _read_idx_files(root: Path) -> Source | None:
    pairs = {part: (_find(root, part, "images-idx3"), _find(root, part, "labels-idx1")) for part in _STEMS}
    files = tuple(file for pair in pairs.values() for file in pair)
    if not any(file.is_file() for file in files):
        return None
    for file in files:
        if not file.is_file():
            raise Misconfigured(
                f"'{file}' (or {file.name}.gz) is missing. Download it from github.com/zalandoresearch/fashion-mnist."
            )
    refuse_twins(pairs["train"][:1], pairs["test"][:1])

    def tasks(part: PartName) -> Iterator[Task]:
        yield partial(_decode, *pairs[part])

    return Source(root, files, tasks, _CLASSES, lambda: stored_in("original pixels", files, "IDX"))


def _decode(image_file: Path, label_file: Path) -> Block:
    pixels, labels = _read_idx(image_file, 3), _read_idx(label_file, 1).astype(np.int64)
    if len(pixels) != len(labels) or pixels.shape[1:] != (28, 28):
        raise Misconfigured(
            f"'{image_file}' holds an array of shape {pixels.shape} for {len(labels)} labels; expected (n, 28, 28) "
            f"for n labels. Download both files again."
        )
    if len(labels) and labels.max() >= len(_CLASSES):
        raise Misconfigured(f"'{label_file}' has label {labels.max()}; expected 0 to 9. Download it again.")
    return Block(pixels[:, None], labels)


def _read_idx(file: Path, dimensions: int) -> Array:
    """An IDX file: two zeros, type 8, number of dimensions, sizes as big-endian integers, then the bytes."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise Misconfigured(f"'{file}' is damaged ({error}). Download it again.") from error
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, _UNSIGNED_BYTES, dimensions)):
        raise Misconfigured(
            f"'{file}' does not start like an IDX file of unsigned bytes with {dimensions} dimension(s). "
            f"Download it again."
        )
    shape = tuple(int(size) for size in np.frombuffer(data[4:start], dtype=">u4"))
    expected = int(np.prod(shape, dtype=np.int64))
    if len(data) - start != expected:
        raise Misconfigured(
            f"'{file}' holds {len(data) - start} values; its header promises {expected}. Download it again."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


_FASHION = declare(
    Spec(
        name="fashion_mnist",
        formats=(
            _read_idx_files,
            lambda root: read_tables(root, Fit(28, channels=1), Columns(label="label"), _CLASSES),
        ),
        wanted="train-images-idx3-ubyte[.gz] and its three companions, or train and test .parquet files",
        how="On Debian: apt install dataset-fashion-mnist; else put the IDX files of "
        "github.com/zalandoresearch/fashion-mnist there.",
        mean=(0.2860,),
        std=(0.3530,),
        hub=Hub("zalando-datasets/fashion_mnist", ("fashion_mnist/*.parquet",)),
        system=(_DEBIAN,),
        published=(60_000, 10_000),
    )
)


@datasets.register()
def fashion_mnist(path: str = "") -> Dataset:
    """Fashion-MNIST: 28×28 grey pictures of 10 kinds of clothes, 60,000 for training and 10,000 for testing."""
    return load(_FASHION, path)
