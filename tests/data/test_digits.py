"""Facts about the embedded digits."""

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets
from fedblade.data import digits


def test_sizes_classes_and_types_are_as_documented():
    made = datasets.get("digits").make()
    assert (len(made.train), len(made.test)) == (1348, 449)
    assert made.input_shape == (1, 8, 8)
    assert made.num_classes == 10
    assert made.class_names == tuple("0123456789")
    assert made.train.inputs.dtype == np.uint8
    assert (made.train.inputs.min(), made.train.inputs.max()) == (0, 16)


def test_samples_and_their_order_are_scikit_learns():
    source = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.default_rng(2024).permutation(1797)
    made = datasets.get("digits").make()
    for part, rows in ((made.train, order[449:]), (made.test, order[:449])):
        assert part.inputs.shape == (len(rows), 1, 8, 8)
        assert np.array_equal(part.inputs[:, 0], source.images[rows])
        assert np.array_equal(part.labels, source.target[rows])


def test_runs_of_earlier_versions_go_on_with_the_digits():
    made = datasets.get("digits").make()
    assert made.digest() == "e08e9880c77264fe048f8aa6308d36a4f4d1e0d117d57b8f16fbf9001d003fc2"
    assert made.source == "scikit-learn's own"


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    changed = tmp_path / "digits.npz"
    changed.write_bytes(digits._FILE.read_bytes()[:-1] + b"!")
    monkeypatch.setattr(digits, "_FILE", changed)
    with pytest.raises(Misconfigured, match="Install fedblade again"):
        digits.digits()


def test_no_image_is_both_trained_and_tested_on():
    made = datasets.get("digits").make()
    train, test = ({row.tobytes() for row in part.inputs} for part in (made.train, made.test))
    assert len(train) == 1348
    assert not train & test


def test_every_class_is_in_both_parts_in_fair_numbers():
    made = datasets.get("digits").make()
    assert np.bincount(made.train.labels, minlength=10).min() > 110
    assert np.bincount(made.test.labels, minlength=10).min() > 30


def test_normalised_training_inputs_have_mean_zero_and_deviation_one():
    made = datasets.get("digits").make()
    scaled = (made.train.inputs / made.unit - made.mean[0]) / made.std[0]
    assert abs(scaled.mean()) < 0.01
    assert abs(scaled.std() - 1) < 0.01
