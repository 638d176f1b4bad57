"""A user's pictures: one folder per class, or parquet tables."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._columns import Columns
from fedblade.data._dataset import Dataset
from fedblade.data._folders import (
    class_folders,
    find_test_folder,
    labelled_parts,
    labelled_pictures,
    picture_source,
    split_at_random,
)
from fedblade.data._load import load
from fedblade.data._pictures import Fit, Picture, common_size
from fedblade.data._source import Source
from fedblade.data._spec import Spec
from fedblade.data._tables import find_tables, first_picture, read_tables


def _check(name: str, path: str, size: int, channels: int) -> None:
    if not path:
        raise Misconfigured(f"dataset '{name}' needs a folder: --set dataset.path=DIR.")
    if size < 0:
        raise Misconfigured(f"dataset.size = {size}; expected a number of pixels, or 0 for the size of the pictures.")
    if channels not in {1, 3}:
        raise Misconfigured(f"dataset.channels = {channels}; expected 3 (colour) or 1 (grey).")


def _fit(size: int, channels: int, pictures: Sequence[Picture]) -> Fit:
    """Pictures are resized to `size` if it is set; otherwise all must be squares of one size."""
    return Fit(size, "cover", channels) if size else Fit(common_size(pictures), "exact", channels)


def _read_folder(size: int, channels: int, test_share: float, root: Path) -> Source | None:
    """train/CLASS/* and test/CLASS/* (or val/…), or CLASS/* to be split."""
    train, test = root / "train", find_test_folder(root)
    if not root.is_dir():
        return None
    if train.is_dir() and test is not None:
        classes = class_folders(train)
        unknown = set(class_folders(test)) - set(classes)
        if unknown:
            raise Misconfigured(
                f"'{test}' has a class '{min(unknown)}' that '{train}' lacks; expected the same classes."
            )
        parts = labelled_parts(train, test, classes)
        return picture_source(root, parts, _fit(size, channels, [*parts["train"], *parts["test"]]), classes)
    base = train if train.is_dir() else root
    classes = class_folders(base)
    if not classes:
        return None
    if not 0 < test_share < 1:
        raise Misconfigured(
            f"'{root}' has no test part; expected a folder 'test' or 'val' beside 'train'. Add one, or set "
            f"dataset.test_share=0.2 to draw it from the training pictures."
        )
    pictures = labelled_pictures(base, classes)
    drawn = split_at_random(pictures, test_share)
    fit = _fit(size, channels, pictures)
    return picture_source(root, {"train": drawn[0], "test": drawn[1]}, fit, classes, options=f"split {test_share}")


@datasets.register()
def image_folder(path: str = "", size: int = 0, channels: int = 3, test_share: float = 0.0) -> Dataset:
    """A user's pictures in folders train/CLASS/* and test/CLASS/*, normalised with their mean and deviation.

    With `size`, the shorter side is resized to so many pixels and the centre is cropped; 0 keeps the pictures, which
    must then be squares of one size. Without a test folder, the share `test_share` of the pictures is the test part.
    """
    _check("image_folder", path, size, channels)
    spec = Spec(
        name="image_folder",
        formats=(partial(_read_folder, size, channels, test_share),),
        wanted="train/CLASS/* and test/CLASS/* (or CLASS/* with dataset.test_share set)",
        how="Sort the pictures into one folder per class.",
        measured=True,
    )
    return load(spec, path)


def _read_parquet(size: int, channels: int, columns: Columns, root: Path) -> Source | None:
    if not find_tables(root)["train"]:
        return None
    return read_tables(root, _fit(size, channels, [first_picture(root, columns)]), columns)


@datasets.register()
def parquet(path: str = "", image: str = "", label: str = "", size: int = 0, channels: int = 3) -> Dataset:
    """A user's parquet tables, as the Hugging Face hub stores pictures, normalised with their mean and deviation.

    File names contain `train` or `test` (or `validation`). `image` and `label` name the columns if several columns are
    possible; `size` and `channels` work as in `image_folder`.
    """
    _check("parquet", path, size, channels)
    spec = Spec(
        name="parquet",
        formats=(partial(_read_parquet, size, channels, Columns(image, label)),),
        wanted="files like train.parquet and test.parquet",
        how="Give the folder that holds them.",
        measured=True,
    )
    return load(spec, path)
