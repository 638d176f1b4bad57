"""The 8×8 handwritten digits that are part of scikit-learn: 1,797 images, 10 classes, no download."""

import numpy as np

from fedblade.core.errors import MissingExtra
from fedblade.core.registry import datasets
from fedblade.data._dataset import Dataset, Part

_TEST_SHARE = 0.25
_SPLIT_SEED = 2024


@datasets.register()
def digits() -> Dataset:
    """Handwritten digits, 8×8 pixels, 10 classes: 1,348 training and 449 test images, embedded."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra("scikit-learn", "digits", "dataset 'digits'") from error
    bunch = load_digits()
    images = bunch.images.astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
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
        source="scikit-learn's own",
        class_names=tuple(str(digit) for digit in range(10)),
    )
