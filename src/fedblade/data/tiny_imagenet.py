"""Tiny-ImageNet from its original folder or hub tables, at 64×64 or as a 32×32 copy."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._columns import Columns
from fedblade.data._dataset import Dataset
from fedblade.data._folders import labelled_pictures, picture_source
from fedblade.data._load import load
from fedblade.data._pictures import Fit, Picture
from fedblade.data._source import PartName, Source
from fedblade.data._spec import Hub, Spec, declare
from fedblade.data._tables import read_tables

_ARCHIVE_FOLDER = "tiny-imagenet-200"


def _read_original(fit: Fit, root: Path) -> Source | None:
    """The layout of the archive: train/ID/images/*.JPEG, and val/images/*.JPEG with val/val_annotations.txt."""
    base = root / _ARCHIVE_FOLDER if (root / _ARCHIVE_FOLDER).is_dir() else root
    ids, annotations = base / "wnids.txt", base / "val" / "val_annotations.txt"
    if not ids.is_file() and not annotations.is_file():
        return None
    for file in (ids, annotations):
        if not file.is_file():
            raise Misconfigured(f"'{file}' is missing from Tiny-ImageNet. Extract tiny-imagenet-200.zip again.")
    # Classes are numbered by sorted id, as in hub copies and class folders; the order of wnids.txt is arbitrary.
    classes = sorted(ids.read_text().split())
    parts: dict[PartName, Sequence[Picture]] = {
        "train": labelled_pictures(base / "train", classes),
        "test": _validation(annotations, classes),
    }
    return picture_source(base, parts, fit, classes, lists=(ids, annotations))


def _validation(annotations: Path, classes: Sequence[str]) -> list[Picture]:
    number = {name: label for label, name in enumerate(classes)}
    pictures = []
    for line, text in enumerate(annotations.read_text().splitlines(), start=1):
        fields = text.split("\t")
        if len(fields) < 2 or fields[1] not in number:
            raise Misconfigured(
                f"'{annotations}' line {line} is '{text[:60]}'; expected a file name and a class of wnids.txt. "
                f"Extract tiny-imagenet-200.zip again."
            )
        path = annotations.parent / "images" / fields[0]
        if not path.is_file():
            raise Misconfigured(
                f"'{path}' is missing; line {line} of {annotations.name} names it. Restore the picture."
            )
        pictures.append(Picture(path, number[fields[1]]))
    return pictures


def _describe(name: str, fit: Fit, folders: tuple[str, ...], hub: Hub | None) -> Spec:
    classes = tuple(str(label) for label in range(200))
    return declare(
        Spec(
            name=name,
            formats=(
                partial(_read_original, fit),
                lambda root: read_tables(root, fit, Columns(label="label"), classes, stand_ins=True),
            ),
            wanted=f"{_ARCHIVE_FOLDER}/ or train and valid .parquet files with {fit.size}×{fit.size} pictures",
            how=f"Extract tiny-imagenet-200.zip (http://cs231n.stanford.edu/tiny-imagenet-200.zip) to {name}/ there.",
            mean=(0.4802, 0.4481, 0.3975),
            std=(0.2770, 0.2691, 0.2821),
            folders=folders,
            hub=hub,
            published=(100_000, 10_000),
        )
    )


_HUB = Hub("zh-plus/tiny-imagenet", ("data/*.parquet",))
_TINY = _describe("tiny_imagenet", Fit(64), (), _HUB)
_TINY32 = _describe("tiny_imagenet32", Fit(32, "halve"), ("tiny_imagenet",), _HUB)


@datasets.register()
def tiny_imagenet(path: str = "") -> Dataset:
    """Tiny-ImageNet: 64×64 colour photographs, 200 classes, 100,000 for training; tests use the validation part."""
    return load(_TINY, path)


@datasets.register()
def tiny_imagenet32(path: str = "") -> Dataset:
    """Tiny-ImageNet at 32×32: a copy stored at that size, or the 64×64 pictures averaged over 2×2 pixels."""
    return load(_TINY32, path)
