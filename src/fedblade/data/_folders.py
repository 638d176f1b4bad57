"""Pictures in folders, one folder per class, as a source."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.data._pictures import ENDINGS, Fit, Picture, formats_of, picture_tasks
from fedblade.data._source import PartName, Source, stored_in

TEST_NAMES = ("test", "val", "valid", "validation")
_SPLIT_SEED = 2024


def list_pictures(folder: Path) -> list[Path]:
    """Picture files below a folder, sorted; hidden files are left out."""
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and not path.name.startswith("."))
    return sorted(paths)


def class_folders(folder: Path) -> tuple[str, ...]:
    """Names of the class folders, sorted."""
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")))


def labelled_pictures(folder: Path, classes: Sequence[str], group: str | None = None) -> list[Picture]:
    """Pictures of every class below `folder`; every class must have a folder with at least one picture."""
    pictures = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            raise Misconfigured(f"'{folder}' has no folder '{name}'; expected one per class. Restore it.")
        paths = list_pictures(folder / name)
        if not paths:
            raise Misconfigured(f"'{folder / name}' holds no pictures; expected JPEG or PNG files. Restore them.")
        pictures += [Picture(path, label, group) for path in paths]
    return pictures


def labelled_parts(train: Path, test: Path, classes: Sequence[str]) -> dict[PartName, Sequence[Picture]]:
    """Pictures of both parts, each with one folder per class."""
    return {"train": labelled_pictures(train, classes), "test": labelled_pictures(test, classes)}


def split_at_random(pictures: Sequence[Picture], test_share: float) -> tuple[list[Picture], list[Picture]]:
    """Split pictures into a training and a test part: always the same split, at least one picture in each part."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(pictures))
    cut = min(max(1, round(test_share * len(pictures))), len(pictures) - 1)
    test = set(order[:cut].tolist())
    return (
        [picture for i, picture in enumerate(pictures) if i not in test],
        [picture for i, picture in enumerate(pictures) if i in test],
    )


def picture_source(
    root: Path,
    parts: Mapping[PartName, Sequence[Picture]],
    fit: Fit,
    class_names: Sequence[str],
    *,
    lists: Sequence[Path] = (),
    options: str = "",
) -> Source:
    """Pictures on disk as a source; `lists` are further files that the labels or the split were read from."""
    pictures = [picture for part in parts.values() for picture in part]
    files = [picture.data for picture in pictures if isinstance(picture.data, Path)]
    # There may be a million pictures, so only one of each folder is opened to find the format.
    one_per_folder = {path.parent: picture for path, picture in zip(files, pictures, strict=True)}
    return Source(
        root=root,
        files=(*lists, *files),
        read=lambda part: picture_tasks(parts[part], fit),
        class_names=tuple(class_names),
        describe=lambda: stored_in(formats_of(one_per_folder.values()), files, "picture"),
        options=f"{fit} {options}",
        total=len(pictures),
    )


def find_test_folder(root: Path) -> Path | None:
    """The folder of the test part beside `train`, under one of its usual names."""
    return next((root / name for name in TEST_NAMES if (root / name).is_dir()), None)


def read_folders(root: Path, fit: Fit) -> Source | None:
    """The layout train/CLASS/*.png and test/CLASS/*.png (or val/…); None for another layout."""
    test = find_test_folder(root)
    if not (root / "train").is_dir() or test is None:
        return None
    names = class_folders(root / "train")
    if not names or not (root / "train" / names[0]).is_dir():
        return None
    return picture_source(root, labelled_parts(root / "train", test, names), fit, names)
