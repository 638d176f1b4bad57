"""A user's data as a `Dataset`: conversion, normalisation, digests and refusals."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset, Part, as_dataset, to_samples

RNG = np.random.default_rng(3)
X = RNG.random((12, 5), dtype=np.float32)
Y = np.arange(12) % 3
PIXELS = RNG.integers(0, 256, (12, 6, 7), dtype=np.uint8)


def batch(dataset, part, count=4, dtype=torch.float64):
    samples = to_samples(dataset, part, torch.device("cpu"), dtype, None)
    return samples.batch(torch.arange(count))


def test_four_arrays_become_a_dataset():
    dataset = as_dataset((X, Y, X[:5], Y[:5]))
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (12, 5, 3)
    inputs, labels = batch(dataset, dataset.train)
    assert np.array_equal(inputs, X[:4].astype(np.float64))
    assert labels.tolist() == Y[:4].tolist()


def test_bytes_are_pixels_get_a_channel_and_are_divided_by_255():
    dataset = as_dataset((PIXELS, Y, PIXELS[:5], Y[:5]))
    assert dataset.input_shape == (1, 6, 7)
    inputs, _ = batch(dataset, dataset.train)
    assert torch.allclose(inputs, torch.from_numpy(PIXELS[:4, None] / 255.0), rtol=0, atol=1e-15)


def test_bytes_with_channels_keep_their_shape():
    colour = np.stack([PIXELS] * 3, axis=1)
    dataset = as_dataset((colour, Y, colour, Y))
    assert dataset.input_shape == (3, 6, 7)
    assert dataset.unit == 255.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint16])
def test_other_types_are_used_as_they_are(dtype):
    table = (RNG.random((12, 6, 7)) * 50).astype(dtype)
    dataset = as_dataset((table, Y, table, Y))
    assert dataset.input_shape == (6, 7)
    inputs, _ = batch(dataset, dataset.train)
    assert np.array_equal(inputs, table[:4].astype(np.float64))


def test_two_torch_datasets_equal_the_arrays_inside():
    train, test = (TensorDataset(torch.from_numpy(X[:n]), torch.from_numpy(Y[:n])) for n in (12, 5))
    dataset = as_dataset((train, test))
    assert dataset.digest() == as_dataset((X, Y, X[:5], Y[:5])).digest()


def test_lists_and_tensors_will_do():
    lists = as_dataset((X.tolist(), Y.tolist(), X.tolist(), Y.tolist()))
    tensors = as_dataset(tuple(torch.from_numpy(each) for each in (X, Y, X, Y)))
    assert np.allclose(lists.train.inputs, tensors.train.inputs)
    assert lists.train.labels.tolist() == tensors.train.labels.tolist()


def test_arrays_in_another_byte_order_will_do():
    dataset = as_dataset((X.astype(">f4"), Y.astype(">i4"), X.astype(">f4"), Y))
    assert np.array_equal(batch(dataset, dataset.train)[0], X[:4].astype(np.float64))


def test_a_dataset_stays_what_it_is():
    dataset = Dataset("mine", Part(X, Y), Part(X, Y), 3)
    assert as_dataset(dataset) is dataset


def test_classes_that_only_the_test_set_has_are_counted():
    assert as_dataset((X, Y, X[:2], np.array([0, 6]))).num_classes == 7


def test_normalisation_is_per_channel():
    colour = np.stack([PIXELS] * 2, axis=1)
    dataset = Dataset("c", Part(colour, Y), Part(colour, Y), 3, unit=255.0, mean=(0.5, 0.1), std=(0.2, 0.4))
    inputs, _ = batch(dataset, dataset.train)
    expected = (colour[:4] / 255.0 - np.array([0.5, 0.1])[:, None, None]) / np.array([0.2, 0.4])[:, None, None]
    assert np.allclose(inputs, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("what", ["inputs", "labels", "order"])
def test_any_change_of_the_contents_changes_the_digest(part, what):
    def make(**changed):
        parts = {name: Part(X.copy(), Y.copy()) for name in ("train", "test")} | changed
        return Dataset("d", parts["train"], parts["test"], 3).digest()

    inputs, labels = X.copy(), Y.copy()
    if what == "inputs":
        inputs[3, 2] += 1
    elif what == "labels":
        labels[3] = (labels[3] + 1) % 3
    else:
        inputs, labels = inputs[::-1].copy(), labels[::-1].copy()
    assert make() == make()
    assert make(**{part: Part(inputs, labels)}) != make()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, ["type int;", "arrays (x, y) or (x, y, x_test, y_test)"]),
        ((X, Y, X), ["tuple with 3 parts", "arrays (x, y) or (x, y, x_test, y_test)"]),
        ((1, 2), ["tuple with 2 parts", "a torch dataset or two (train, test)"]),
        ((X, Y.astype(float), X, Y), ["float64", "integer"]),
        ((X, Y[:, None], X, Y), ["(12, 1)", "one integer class"]),
        ((X, Y[:-1], X, Y), ["(12, 5)", "(11,)", "one label for each input"]),
        ((Y, Y, Y, Y), ["(12,)"]),
        ((X, Y - 1, X, Y), ["-1 to 2", "0 to 3"]),
        ((X, Y * 0, X, Y * 0), ["one class"]),
        ((X[:0], Y[:0], X, Y), ["no training samples"]),
        ((X, Y, X[:0], Y[:0]), ["no test samples"]),
        ((X * np.nan, Y, X, Y), ["NaN", "training"]),
        ((X, Y, X * np.inf, Y), ["infinite", "test"]),
        ((X, Y, X[:, :4], Y), ["(5,)", "(4,)"]),
        ((X.astype(object), Y, X, Y), ["object"]),
        ((X.astype(str), Y, X, Y), ["<U"]),
        ((X.astype(complex), Y, X, Y), ["complex128"]),
        ((PIXELS, Y, PIXELS / 255.0, Y), ["uint8", "float64"]),
        (([[1.0], [1.0, 2.0]], [0, 1], [[1.0]], [0]), ["x_train", "rows of 1 to 2 values"]),
    ],
    ids=["number", "three", "no-datasets", "float-labels", "2d-labels", "lengths", "1d", "negative", "one-class",
         "empty", "empty-test", "nan", "inf", "shapes", "objects", "text", "complex", "two-types", "ragged"],
)  # fmt: skip
def test_data_that_cannot_be_trained_on_are_refused_in_one_line(given, words):
    with pytest.raises(Misconfigured) as caught:
        as_dataset(given)
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == []


def test_advice_names_only_settings_that_exist():
    """`arrays` has no knob `num_classes`, so it must not be recommended."""
    with pytest.raises(Misconfigured) as caught:
        as_dataset((X, Y - 1, X, Y))
    assert "set num_classes" not in str(caught.value)
