"""SVHN, cropped digits without the extra part, from its .mat files or hub tables."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.extras import need
from fedblade.core.registry import datasets
from fedblade.data._columns import Columns
from fedblade.data._dataset import Dataset
from fedblade.data._load import load
from fedblade.data._pictures import Fit
from fedblade.data._source import Block, PartName, Source, Task, refuse_twins, stored_in
from fedblade.data._spec import Hub, Spec, declare
from fedblade.data._tables import read_tables

_CLASSES = tuple(str(digit) for digit in range(10))


def _file(root: Path, part: PartName) -> Path:
    return root / f"{part}_32x32.mat"


def _read_mat(root: Path) -> Source | None:
    files = (_file(root, "train"), _file(root, "test"))
    if not any(file.is_file() for file in files):
        return None
    for file in files:
        if not file.is_file():
            raise Misconfigured(f"'{file}' is missing. Download it from http://ufldl.stanford.edu/housenumbers.")
    refuse_twins(files[:1], files[1:])

    def tasks(part: PartName) -> Iterator[Task]:
        yield partial(_decode, _file(root, part))

    return Source(root, files, tasks, _CLASSES, lambda: stored_in("original pixels", files, ".mat"))


def _decode(file: Path) -> Block:
    """X [32, 32, 3, n] and y [n, 1], where the label 10 stands for the digit 0."""
    matlab = need("scipy.io", "data", "scipy", "reading .mat files")
    try:
        stored = matlab.loadmat(file, variable_names=("X", "y"))
        pixels, labels = stored["X"], stored["y"].reshape(-1).astype(np.int64)
    except KeyError as error:
        raise Misconfigured(f"'{file}' has no variable {error}; expected X and y. Download it again.") from error
    except Exception as error:  # the reader raises errors of any type for a damaged file
        reason = str(error).strip().partition("\n")[0]
        raise Misconfigured(f"'{file}' is damaged or not a .mat file ({reason}). Download it again.") from error
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, len(labels)):
        raise Misconfigured(
            f"'{file}' holds X of shape {pixels.shape} and type {pixels.dtype} for {len(labels)} labels; expected "
            f"(32, 32, 3, n) unsigned bytes. Use the cropped digits (format 2)."
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() <= 10):
        raise Misconfigured(
            f"'{file}' has labels from {labels.min()} to {labels.max()}; expected 1 to 10. Download it again."
        )
    return Block(pixels.transpose(3, 2, 0, 1), labels % 10)


_SVHN = declare(
    Spec(
        name="svhn",
        formats=(_read_mat, lambda root: read_tables(root, Fit(32), Columns(label="label"), _CLASSES)),
        wanted="train_32x32.mat and test_32x32.mat, or train and test .parquet files",
        how="Put the two .mat files (http://ufldl.stanford.edu/housenumbers) there.",
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        hub=Hub("ufldl-stanford/svhn", ("cropped_digits/train-*.parquet", "cropped_digits/test-*.parquet")),
        published=(73_257, 26_032),
    )
)


@datasets.register()
def svhn(path: str = "") -> Dataset:
    """SVHN: 32×32 colour photographs of house-number digits, 73,257 for training and 26,032 for testing."""
    return load(_SVHN, path)
