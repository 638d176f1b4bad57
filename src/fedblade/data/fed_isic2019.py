"""Fed-ISIC2019: skin lesions from six centres, as FLamby prepares them."""

import csv
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset
from fedblade.data._folders import picture_source
from fedblade.data._load import load
from fedblade.data._pictures import Fit, Picture
from fedblade.data._source import PartName, Source
from fedblade.data._spec import IMAGENET, Spec, declare

_PICTURES = "ISIC_2019_Training_Input_preprocessed"
_SPLIT = "train_test_split"
_CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
_COLUMNS = ("image", "target", "center", "fold")


def _read(root: Path) -> Source | None:
    """FLamby's folder of prepared pictures with FLamby's table `train_test_split` beside it."""
    folder = root / _PICTURES
    table = next((file for file in (root / _SPLIT, root / f"{_SPLIT}.csv") if file.is_file()), None)
    if not folder.is_dir() and table is None:
        return None
    if not folder.is_dir():
        raise Misconfigured(f"'{folder}' is missing; expected FLamby's prepared pictures. Run its resize_images.py.")
    if table is None:
        raise Misconfigured(
            f"'{root / _SPLIT}' is missing. Copy it from FLamby's source: "
            f"flamby/datasets/fed_isic2019/dataset_creation_scripts/{_SPLIT}."
        )
    parts: dict[PartName, list[Picture]] = {"train": [], "test": []}
    with table.open(newline="") as stream:
        rows = csv.DictReader(stream)
        lacking = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
        if lacking:
            raise Misconfigured(f"'{table}' has no column '{lacking[0]}'; expected FLamby's file. Copy it again.")
        for number, row in enumerate(rows, start=2):
            part, picture = _entry(folder, table, number, row)
            parts[part].append(picture)
    return picture_source(root, parts, Fit(224, "cover"), _CLASSES, lists=(table,))


def _entry(folder: Path, table: Path, number: int, row: dict[str, str]) -> tuple[PartName, Picture]:
    part, label, centre = row["fold"], row["target"], row["center"]
    if part not in {"train", "test"} or label not in {str(i) for i in range(len(_CLASSES))}:
        raise Misconfigured(
            f"'{table}' line {number} says fold '{part}' and target '{label}'; expected train or test, and 0 to "
            f"{len(_CLASSES) - 1}. Copy FLamby's file again."
        )
    path = folder / f"{Path(row['image']).name}.jpg"
    if not path.is_file():
        raise Misconfigured(f"'{path}' is missing; line {number} of {table.name} names it. Prepare the data again.")
    return "train" if part == "train" else "test", Picture(path, int(label), f"centre {centre}")


_ISIC = declare(
    Spec(
        name="fed_isic2019",
        formats=(_read,),
        wanted=f"{_PICTURES}/ and {_SPLIT}",
        how="Prepare it with FLamby (github.com/owkin/FLamby), which asks you to accept the licence.",
        mean=IMAGENET[0],
        std=IMAGENET[1],
        margin=12,
        published=(18_597, 4_650),
    )
)


@datasets.register()
def fed_isic2019(path: str = "") -> Dataset:
    """Fed-ISIC2019: skin lesions, 8 classes, 6 centres, at 200×200; groups are the centres.

    Only the central 224×224 pixels of FLamby's pictures (shorter side 224) are stored, so a random crop of 200 does not
    reach the strips beside them. The test crop is FLamby's, up to one pixel if a width is odd.
    """
    return load(_ISIC, path)
