"""The real CIFAR-10 and Tiny-ImageNet, where FEDBLADE_DATA points to them."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from fedblade.data.cifar import cifar10
from fedblade.data.tiny_imagenet import tiny_imagenet, tiny_imagenet32

GIVEN = os.environ.get("FEDBLADE_DATA", "")


def needed(*names):
    found = next((Path(GIVEN) / name for name in names if GIVEN and (Path(GIVEN) / name).is_dir()), None)
    if found is None:
        pytest.skip(f"FEDBLADE_DATA ({GIVEN or 'not set'}) holds no {' or '.join(names)}")
    return str(found)


def test_cifar10_is_whole_and_starts_fast():
    path = needed("cifar10")
    dataset = cifar10(path)
    for part, per_class in ((dataset.train, 5000), (dataset.test, 1000)):
        assert part.inputs.shape == (10 * per_class, 3, 32, 32)
        assert np.bincount(part.labels).tolist() == [per_class] * 10
    mean = dataset.train.inputs.mean(axis=(0, 2, 3)) / 255.0
    np.testing.assert_allclose(mean, dataset.mean, atol=0.005)
    began = time.monotonic()
    assert cifar10(path).fingerprint == dataset.fingerprint
    assert time.monotonic() - began < 2.0


@pytest.mark.slow
def test_tiny_imagenet_is_whole_and_decoded_in_time():
    small = GIVEN and (Path(GIVEN) / "tiny_imagenet32").is_dir()
    path = needed("tiny_imagenet32", "tiny_imagenet")
    began = time.monotonic()
    dataset = tiny_imagenet32(path) if small else tiny_imagenet(path)
    assert time.monotonic() - began < 120.0
    assert np.bincount(dataset.train.labels).tolist() == [500] * 200
    assert np.bincount(dataset.test.labels).tolist() == [50] * 200
    mean = dataset.train.inputs[::10].mean(axis=(0, 2, 3)) / 255.0
    np.testing.assert_allclose(mean, dataset.mean, atol=0.01)
