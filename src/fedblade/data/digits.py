"""The 8×8 handwritten digits that are part of this package: 1,797 images, 10 classes, no download."""

from pathlib import Path

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset, Part
from fedblade.data._digest import hash_file

_FILE = Path(__file__).with_name("digits.npz")
_FILE_DIGEST = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
_TEST_SHARE = 0.25
_SPLIT_SEED = 2024


@datasets.register()
def digits() -> Dataset:
    """Handwritten digits, 8×8 pixels, 10 classes: 1,348 training and 449 test images, embedded."""
    if hash_file(_FILE) != _FILE_DIGEST:
        raise Misconfigured(
            f"'{_FILE}' is not the file that this version of fedblade was published with (its SHA-256 differs). "
            "Install fedblade again."
        )
    with np.load(_FILE, allow_pickle=False) as stored:
        images, labels = stored["images"][:, None], stored["labels"].astype(np.int64)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    cut = int(len(labels) * _TEST_SHARE)
    test, train = order[:cut], order[cut:]
    return Dataset(
        name="digits",
        train=Part(images[train], labels[train]),
        test=Part(images[test], labels[test]),
        num_classes=10,
        unit=16.0,
        mean=(0.305,),
        std=(0.376,),
        # The pictures are scikit-learn's, and runs of earlier versions store these words.
        source="scikit-learn's own",
        class_names=tuple(str(digit) for digit in range(10)),
    )
