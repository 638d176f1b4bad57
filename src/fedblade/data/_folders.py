"""Pictures in folders: one folder per class, read as a source."""

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
    found = [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and not path.name.startswith(".")]
    return sorted(found)


def class_folders(folder: Path) -> tuple[str, ...]:
    """Names of the class folders, sorted."""
    return tuple(sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")))


def labelled_pictures(folder: Path, classes: Sequence[str], group: str | None = None) -> list[Picture]:
    """Pictures of every class below `folder`; each class folder must exist and hold some."""
    found = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            raise Misconfigured(f"'{folder}' has no folder '{name}'; expected one per class. Restore it.")
        paths = list_pictures(folder / name)
        if not paths:
            raise Misconfigured(f"'{folder / name}' holds no pictures; expected JPEG or PNG files. Restore them.")
        found += [Picture(path, label, group) for path in paths]
    return found


def split_at_random(pictures: Sequence[Picture], test_share: float) -> tuple[list[Picture], list[Picture]]:
    """A training and a test part of pictures that come unsplit: always the same split, at least one in each part."""
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(pictures))
    cut = min(max(1, round(test_share * len(pictures))), len(pictures) - 1)
    test = set(order[:cut].tolist())
    return (
        [each for i, each in enumerate(pictures) if i not in test],
        [each for i, each in enumerate(pictures) if i in test],
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
    """Pictures on disk as a source; `lists` are further files that say which picture is what."""
    pictures = [picture for part in parts.values() for picture in part]
    files = [picture.data for picture in pictures if isinstance(picture.data, Path)]
    # One picture of each folder stands for the others, because there may be a million.
    one_each = {path.parent: picture for path, picture in zip(files, pictures, strict=True)}
    return Source(
        root=root,
        files=(*lists, *files),
        read=lambda part: picture_tasks(parts[part], fit),
        class_names=tuple(class_names),
        describe=lambda: stored_in(formats_of(one_each.values()), files, "picture"),
        options=f"{fit} {options}",
        total=len(pictures),
    )


def find_test_folder(root: Path) -> Path | None:
    """The folder of the test part beside `train`, under any of its usual names."""
    return next((root / name for name in TEST_NAMES if (root / name).is_dir()), None)


def read_folders(root: Path, fit: Fit, classes: Sequence[str] = ()) -> Source | None:
    """The layout train/CLASS/*.png and test/CLASS/*.png (or val/…); None if it is another one."""
    test = find_test_folder(root)
    if not (root / "train").is_dir() or test is None:
        return None
    names = tuple(classes) or class_folders(root / "train")
    if not names or not (root / "train" / names[0]).is_dir():
        return None
    parts: dict[PartName, Sequence[Picture]] = {
        "train": labelled_pictures(root / "train", names),
        "test": labelled_pictures(test, names),
    }
    return picture_source(root, parts, fit, names)
