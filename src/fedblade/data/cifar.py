"""CIFAR-10 and CIFAR-100 from the binary version, hub tables or folders of pictures. Pickle files are refused."""

import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._columns import Columns
from fedblade.data._dataset import Dataset
from fedblade.data._folders import read_folders
from fedblade.data._load import load
from fedblade.data._pictures import Fit
from fedblade.data._source import PARTS, Block, PartName, Source, Task, refuse_twins, stored_in
from fedblade.data._spec import Hub, Spec, declare
from fedblade.data._tables import read_tables

_PIXELS = 3 * 32 * 32
_RECORDS_PER_BLOCK = 1000

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# fmt: off
CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle",
    "bicycle", "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel",
    "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud",
    "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant",
    "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree",
    "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter",
    "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea",
    "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television",
    "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)
# fmt: on


@dataclass(frozen=True)
class _Binary:
    """The binary version: folder, archive, files of each part, label bytes per record, classes, pickle folder."""

    folder: str
    archive: str
    files: Mapping[PartName, tuple[str, ...]]
    num_labels: int
    classes: tuple[str, ...]
    pickled: str


_BINARY10 = _Binary(
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    files={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    num_labels=1,
    classes=CIFAR10,
    pickled="cifar-10-batches-py",
)
_BINARY100 = _Binary(
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    files={"train": ("train.bin",), "test": ("test.bin",)},
    num_labels=2,
    classes=CIFAR100,
    pickled="cifar-100-python",
)


def _read_binary(layout: _Binary, root: Path) -> Source | None:
    """The binary version, extracted or still in its archive."""
    for folder in (root, root / layout.folder):
        known = [name for names in layout.files.values() for name in names]
        if any((folder / name).is_file() for name in known):
            return _binary_source(layout, folder, tuple(folder / name for name in known), partial(_from_folder, folder))
    archive = root if root.name == layout.archive else root / layout.archive
    if archive.is_file():
        return _binary_source(layout, archive.parent, (archive,), partial(_from_archive, archive, layout.folder))
    return None


def _binary_source(layout: _Binary, root: Path, files: tuple[Path, ...], fetch: Callable[[str], bytes]) -> Source:
    for file in files:
        if not file.is_file():
            raise Misconfigured(f"'{file}' is missing from the binary version. Extract {layout.archive} again.")
    refuse_twins(*([file for file in files if file.name in layout.files[part]] for part in PARTS))

    def tasks(part: PartName) -> Iterator[Task]:
        for name in layout.files[part]:
            yield from _records(layout, f"{root / name}", fetch(name))

    return Source(root, files, tasks, layout.classes, lambda: stored_in("original pixels", files, "binary"))


def _from_folder(folder: Path, name: str) -> bytes:
    return (folder / name).read_bytes()


def _from_archive(archive: Path, folder: str, name: str) -> bytes:
    try:
        with tarfile.open(archive) as opened:
            member = opened.extractfile(f"{folder}/{name}")
            data = b"" if member is None else member.read()
    except KeyError as error:
        raise Misconfigured(f"'{archive}' has no file '{folder}/{name}'. Download it again.") from error
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise Misconfigured(f"'{archive}' is damaged ({error}). Download it again.") from error
    return data


def _records(layout: _Binary, name: str, data: bytes) -> Iterator[Task]:
    """Records of label bytes and 3072 pixel bytes; the last label byte is the class."""
    record = layout.num_labels + _PIXELS
    if not data or len(data) % record:
        raise Misconfigured(
            f"'{name}' has {len(data)} bytes; expected a multiple of {record}, one record per picture. "
            f"Extract {layout.archive} again."
        )
    table = np.frombuffer(data, dtype=np.uint8).reshape(-1, record)
    labels = table[:, layout.num_labels - 1].astype(np.int64)
    wrong = np.flatnonzero(labels >= len(layout.classes))
    if len(wrong):
        raise Misconfigured(
            f"'{name}' record {wrong[0]} has label {labels[wrong[0]]}; expected 0 to {len(layout.classes) - 1}. "
            f"Check that this is the right data set."
        )
    pixels = table[:, layout.num_labels :].reshape(-1, 3, 32, 32)
    for start in range(0, len(table), _RECORDS_PER_BLOCK):
        here = slice(start, start + _RECORDS_PER_BLOCK)
        yield partial(Block, pixels[here], labels[here])


def _read_folders(layout: _Binary, root: Path) -> Source | None:
    source = read_folders(root, Fit(32))
    if source is not None and len(source.class_names) != len(layout.classes):
        raise Misconfigured(
            f"'{root / 'train'}' has {len(source.class_names)} class folders; expected {len(layout.classes)}. "
            f"Check that this is the right data set."
        )
    return source


def _refuse_pickle(layout: _Binary, root: Path) -> None:
    """Refuse the pickle version: unpickling runs code from the file."""
    archive = f"{layout.pickled.replace('-batches-py', '-python')}.tar.gz"
    signs = (root / layout.pickled, root / archive, root / "data_batch_1", root / "meta", root / "batches.meta")
    pickle = root if root.name in {layout.pickled, archive} else next((sign for sign in signs if sign.exists()), None)
    if pickle is not None:
        raise Misconfigured(
            f"'{pickle}' is the Python (pickle) version, which is never read because pickles can run code. Use the "
            f"binary version {layout.archive}, or the parquet files of the hub."
        )


def _describe(
    layout: _Binary, name: str, label: str, mean: tuple[float, ...], std: tuple[float, ...], hub: Hub
) -> Spec:
    return declare(
        Spec(
            name=name,
            formats=(
                partial(_read_binary, layout),
                lambda root: read_tables(root, Fit(32), Columns(label=label), layout.classes),
                partial(_read_folders, layout),
                partial(_refuse_pickle, layout),
            ),
            wanted=f"{layout.folder}, {layout.archive}, train and test .parquet files or train/ and test/ folders",
            how=f"Put {layout.archive} (https://www.cs.toronto.edu/~kriz/cifar.html) there.",
            mean=mean,
            std=std,
            hub=hub,
            published=(50_000, 10_000),
        )
    )


_CIFAR10 = _describe(
    _BINARY10,
    "cifar10",
    "label",
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
    Hub("uoft-cs/cifar10", ("plain_text/*.parquet",)),
)
_CIFAR100 = _describe(
    _BINARY100,
    "cifar100",
    "fine_label",
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
    Hub("uoft-cs/cifar100", ("cifar100/*.parquet",)),
)


@datasets.register()
def cifar10(path: str = "") -> Dataset:
    """CIFAR-10: 32×32 colour photographs of 10 kinds of things, 50,000 for training and 10,000 for testing."""
    return load(_CIFAR10, path)


@datasets.register()
def cifar100(path: str = "") -> Dataset:
    """CIFAR-100: 32×32 colour photographs of 100 kinds of things, 50,000 for training and 10,000 for testing."""
    return load(_CIFAR100, path)
