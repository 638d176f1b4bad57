"""ImageNet-100: a hundred classes from ImageNet's folders, stored at 256×256, used at the inner 224×224."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data._folders import class_folders, find_test_folder, labelled_parts, picture_source
from fedblade.data._load import load
from fedblade.data._pictures import Fit
from fedblade.data._source import Source
from fedblade.data._spec import IMAGENET, Spec, declare

_NUM_CLASSES = 100
_LIST = "classes.txt"


def _read(list_file: str, root: Path) -> Source | None:
    """Pictures train/ID/*.JPEG and val/ID/*.JPEG of the listed classes."""
    test = find_test_folder(root)
    if not (root / "train").is_dir() or test is None:
        return None
    chosen = Path(list_file).expanduser() if list_file else root / _LIST
    lists = (chosen,) if chosen.is_file() else ()
    train = root / "train"
    classes = _read_classes(chosen) if lists else _check_classes(train, class_folders(train)[:_NUM_CLASSES])
    parts = labelled_parts(train, test, classes)
    return picture_source(root, parts, Fit(256, "cover"), classes, lists=lists, options=" ".join(classes))


def _read_classes(file: Path) -> Sequence[str]:
    """The classes of a list, in its order."""
    if not file.is_file():
        raise Misconfigured(
            f"dataset.classes '{file}' does not exist; expected a file with one WordNet id per line. Give such a file, "
            f"or leave dataset.classes out."
        )
    try:
        return _check_classes(file, file.read_text().split())
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(
            f"'{file}' cannot be read ({error}); expected a text file with one WordNet id per line. Restore the file."
        ) from error


def _check_classes(where: Path, classes: Sequence[str]) -> Sequence[str]:
    if len(set(classes)) != _NUM_CLASSES or len(classes) != _NUM_CLASSES:
        raise Misconfigured(
            f"'{where}' names {len(set(classes))} different classes; expected {_NUM_CLASSES}. Correct the list, or use "
            f"dataset 'image_folder' for another number of classes."
        )
    return classes


def _spec(classes: str = "") -> Spec:
    return Spec(
        name="imagenet100",
        formats=(partial(_read, classes),),
        wanted="train/ID/*.JPEG and val/ID/*.JPEG",
        how=f"Put (links to) the class folders of ImageNet there, and optionally the list of 100 ids as {_LIST}.",
        mean=IMAGENET[0],
        std=IMAGENET[1],
        margin=16,
        request=" ".join(_read_classes(Path(classes).expanduser())) if classes else "",
    )


declare(_spec())


@datasets.register()
def imagenet100(path: str = "", classes: str = "") -> Dataset:
    """ImageNet-100 at 224×224: the classes of the file `classes`, of classes.txt, or the first 100 ids in order.

    The shorter side is resized to 256 and the central square is stored, so a random crop does not reach the strips
    beside the square.
    """
    return load(_spec(classes), path)
