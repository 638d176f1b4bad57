"""Facts about the embedded digits."""

import numpy as np

from fedblade.core.registry import datasets


def test_sizes_classes_and_types_are_as_documented():
    digits = datasets.get("digits").make()
    assert (len(digits.train), len(digits.test)) == (1348, 449)
    assert digits.input_shape == (1, 8, 8)
    assert digits.num_classes == 10
    assert digits.class_names == tuple("0123456789")
    assert digits.train.inputs.dtype == np.uint8
    assert (digits.train.inputs.min(), digits.train.inputs.max()) == (0, 16)


def test_training_and_test_images_together_are_scikit_learns():
    from sklearn.datasets import load_digits

    digits, source = datasets.get("digits").make(), load_digits()
    images = np.concatenate([digits.train.inputs, digits.test.inputs]).reshape(-1, 64)
    labels = np.concatenate([digits.train.labels, digits.test.labels])
    mine = sorted((*row, label) for row, label in zip(images.tolist(), labels.tolist(), strict=True))
    theirs = sorted(
        (*map(int, row), label) for row, label in zip(source.data.tolist(), source.target.tolist(), strict=True)
    )
    assert mine == theirs


def test_no_image_is_both_trained_and_tested_on():
    digits = datasets.get("digits").make()
    train, test = ({row.tobytes() for row in part.inputs} for part in (digits.train, digits.test))
    assert len(train) == 1348
    assert not train & test


def test_every_class_is_in_both_parts_in_fair_numbers():
    digits = datasets.get("digits").make()
    assert np.bincount(digits.train.labels, minlength=10).min() > 110
    assert np.bincount(digits.test.labels, minlength=10).min() > 30


def test_the_split_is_the_same_every_time():
    assert datasets.get("digits").make().digest() == datasets.get("digits").make().digest()


def test_normalised_training_inputs_have_mean_zero_and_deviation_one():
    digits = datasets.get("digits").make()
    scaled = (digits.train.inputs / digits.unit - digits.mean[0]) / digits.std[0]
    assert abs(scaled.mean()) < 0.01
    assert abs(scaled.std() - 1) < 0.01
