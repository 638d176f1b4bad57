"""What is recognised in a user's own data: pixels, tables, channels, labels, and transforms that draw numbers."""

import random
import re

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.data import as_dataset, to_samples
from support.shifted_images import ShiftedImages

RNG = np.random.default_rng(5)
Y = np.arange(12) % 3
BYTES = RNG.integers(0, 256, (12, 3, 6, 7), dtype=np.uint8)


class Listed(TorchDataset):
    """Items that are held in lists, changed by a function at each reading."""

    def __init__(self, inputs, labels, change=lambda x: x):
        self.inputs, self.labels, self.change = inputs, labels, change

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.change(self.inputs[i]), self.labels[i]


def samples_of(dataset):
    return to_samples(dataset, dataset.train, torch.device("cpu"), torch.float64, None)


def given_as(x, y):
    """The same data as arrays and as torch datasets."""
    return (x, y, x, y), (Listed(x, y), Listed(x, y))


def test_tables_of_bytes_are_used_as_they_are():
    table = (BYTES[:, 0, 0] > 100).astype(np.uint8)
    for given in given_as(table, Y):
        dataset = as_dataset(given)
        inputs, _ = samples_of(dataset).batch(torch.arange(12))
        assert np.array_equal(inputs, table)
        (note,) = dataset.notes
        assert "[n, 7] are a table and are used as they are" in note


def test_channels_are_brought_to_the_front():
    last = np.moveaxis(BYTES, 1, -1)
    expected = as_dataset((BYTES, Y, BYTES, Y))
    for given in given_as(last, Y):
        dataset = as_dataset(given)
        assert dataset.digest() == expected.digest()
        assert (dataset.unit, dataset.given_shape) == (255.0, (6, 7, 3))
        (note,) = dataset.notes
        assert "[n, 6, 7, 3] has its channels last and is read as [n, 3, 6, 7]; bytes are pixels" in note
    real = as_dataset((last / 255.0, Y, last / 255.0, Y))
    assert (real.input_shape, real.unit) == ((3, 6, 7), 1.0)
    assert len(real.notes) == 1


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ((28, 28, 1), (1, 28, 28)), ((6, 5, 4), (4, 6, 5)), ((3, 6, 7), (3, 6, 7)), ((32, 8, 8), (32, 8, 8)),
        ((1, 4, 4), (1, 4, 4)), ((4, 4, 1), (1, 4, 4)), ((3, 1, 1), (3, 1, 1)),
        ((3, 32, 3), None), ((3, 3, 3), None), ((1, 28, 1), None), ((4, 9, 3), None), ((32, 32, 5), None),
        ((8, 8, 2), None), ((8, 8, 12), None), ((3, 3, 8), None), ((5, 8, 8), (5, 8, 8)), ((9, 8, 5), (9, 8, 5)),
        ((1, 1, 128), (1, 1, 128)), ((2, 8, 8), (2, 8, 8)),
    ],
)  # fmt: skip
def test_shapes_are_read_in_one_way_or_refused(given, stored):
    x = np.zeros((12, *given), dtype=np.float32)
    if stored is not None:
        dataset = as_dataset((x, Y, x, Y))
        assert dataset.input_shape == stored
        reading = f"is read as {stored[0]} channels of {stored[1]}×{stored[2]}"
        assert any(reading in note for note in dataset.notes) == (stored[0] not in (1, 3, 4))
        return
    first, middle, last = given
    with pytest.raises(Misconfigured, match=r"expected .* transpose .* give a fedblade.data.Dataset") as caught:
        as_dataset((x, Y, x, Y))
    for channels, height, width in ((first, middle, last), (last, first, middle)):
        assert re.search(f"{channels} channels? of {height}×{width}", str(caught.value))


def test_integers_that_are_no_bytes_are_used_as_they_are_and_a_line_says_so():
    for pictures in (BYTES.astype(np.int64), BYTES[:, 0].astype(np.int16)):
        dataset = as_dataset((pictures, Y, pictures, Y))
        assert dataset.unit == 1.0
        assert dataset.notes == (
            "inputs: integers are used as they are; give bytes (uint8) to have them divided by 255",
        )
    wide = np.full((12, 1, 8, 8), 4095)
    assert as_dataset((wide, Y, wide, Y)).notes == ("inputs: integers are used as they are, up to 4095",)
    table = BYTES[:, 0, 0].astype(np.int64)
    (note,) = as_dataset((table, Y, table, Y)).notes
    assert "as a table or as token ids; the model gets them as floating-point numbers" in note


def test_pillow_pictures_are_pixels_with_channels_last():
    pictures = pytest.importorskip("PIL.Image")
    colours = [pictures.fromarray(np.moveaxis(each, 0, -1)) for each in BYTES]
    assert as_dataset((Listed(colours, Y), Listed(colours, Y))).digest() == as_dataset((BYTES, Y, BYTES, Y)).digest()
    greys = [each.convert("L") for each in colours]
    assert as_dataset((Listed(greys, Y), Listed(greys, Y))).input_shape == (1, 6, 7)
    numbered = [each.convert("P") for each in colours]
    with pytest.raises(Misconfigured, match="palette"):
        as_dataset((Listed(numbered, Y), Listed(numbered, Y)))


@pytest.mark.parametrize(
    ("labels", "values", "classes", "said"),
    [
        (np.arange(1, 11), tuple(range(1, 11)), 10, "labels: 1, 2, 3, …, 10 are numbered 0 to 9"),
        (np.arange(0, 1000, 100), tuple(range(0, 1000, 100)), 10, "0, 100, 200, …, 900 are numbered 0 to 9"),
        (np.array([-1, 1]), (-1, 1), 2, "labels: -1, 1 are numbered 0 to 1"),
        (np.array([0, 5]), (0, 5), 2, "labels: 0, 5 are numbered"),
        (np.array([0, 1, 2, 4]), None, 5, "0 to 4 are taken as 5 classes, of which 3 have no samples"),
        (np.arange(10), None, 10, None),
    ],
)
def test_labels_become_class_numbers(labels, values, classes, said):
    y = np.tile(labels, 3)
    x = RNG.random((len(y), 4))
    for given in given_as(x, y):
        dataset = as_dataset(given)
        assert (dataset.num_classes, dataset.label_values) == (classes, values)
        assert dataset.class_names == (None if values is None else tuple(map(str, values)))
        back = dataset.train.labels if values is None else np.array(values)[dataset.train.labels]
        assert np.array_equal(back, y)
        assert (said in dataset.notes[0]) if said else dataset.notes == ()


def test_a_class_that_the_test_set_alone_has_keeps_its_place():
    x = RNG.random((6, 4))
    dataset = as_dataset((x, np.array([2, 2, 9, 9, 2, 9]), x[:3], np.array([9, 5, 2])))
    assert dataset.label_values == (2, 5, 9)
    assert dataset.train.labels.tolist() == [0, 0, 2, 2, 0, 2]
    assert dataset.test.labels.tolist() == [2, 1, 0]
    assert "labels: 5 occur only in the test samples" in dataset.notes


@pytest.mark.parametrize("labels", [np.array([-1, 0, 1]), np.arange(3) * 1000 + 7])
def test_labels_that_are_no_classes_are_refused(labels):
    x = RNG.random((3, 4))
    with pytest.raises(Misconfigured, match=r"expected .*\. (Leave|Give)"):
        as_dataset((x, labels, x[:1], labels[:1]))


@pytest.mark.parametrize("kind", [str, object, list])
def test_names_of_classes_are_numbered_in_sorted_order(kind):
    x, names = RNG.random((12, 4)), np.array(["owl", "cat", "dog"])[Y]
    y = names.tolist() if kind is list else names.astype(kind)
    dataset = as_dataset((x, y, x[:3], y[:3]))
    assert dataset.label_values == dataset.class_names == ("cat", "dog", "owl")
    assert [dataset.label_values[label] for label in dataset.train.labels] == names.tolist()
    assert [dataset.label_values[label] for label in dataset.test.labels] == names[:3].tolist()
    assert "cat, dog, owl are numbered 0 to 2 in sorted order" in dataset.notes[0]


def test_numbers_of_which_every_sample_has_its_own_are_no_classes():
    x, y = np.zeros((60, 2)), np.arange(60)
    with pytest.raises(Misconfigured, match="60 samples have 60 different labels"):
        as_dataset((x, y))
    assert as_dataset((x, y // 2)).num_classes == 30


def test_names_that_are_no_classes_are_refused():
    x, each = RNG.random((12, 4)), np.array([f"patient {k}" for k in range(12)])
    with pytest.raises(Misconfigured, match="24 samples have 24 different labels; expected several samples"):
        as_dataset((x, each, x, np.char.add(each, "b")))
    with pytest.raises(Misconfigured, match=r"training labels have .*<U10, test labels .*; expected one name"):
        as_dataset((x, each, x, Y))


def test_rows_of_different_lengths_are_refused_with_a_way_to_pad_them():
    tokens, y = [[1, 2, 3], [4], [5, 6]] * 4, Y
    with pytest.raises(
        Misconfigured, match=r"x_train has rows of 1 to 3 values; .*Pad token ids .*for row in rows\]"
    ) as found:
        as_dataset((tokens, y, tokens, y))
    code = str(found.value).partition("such as 0: ")[2].removesuffix(".")
    padded = eval(code, {"rows": tokens})
    assert as_dataset((padded, y, padded, y)).input_shape == (3,)


def test_labels_of_another_form_come_with_advice():
    x = RNG.random((12, 4))
    names = np.array(["a", "b", "c"])[Y]
    forms = (
        (Y.astype(float), "Convert the labels: labels.astype(int)."),
        (Y > 0, "Convert the labels: labels.astype(int)."),
        (Y[:, None], "Convert the labels: labels.ravel()."),
        (Y[:, None] * 1.0, "Convert the labels: labels.ravel().astype(int)."),
        (np.eye(3)[Y], "labels.argmax(1)."),
        (Y + 0.5, "Give one class for each sample"),
        (np.zeros((12, 2, 2), int), "Give one class for each sample"),
        (np.array(1), "Give one class for each sample"),
        (names[:, None], "Convert one of them"),
        (np.array([*names[:-1], None], dtype=object), "Give labels as whole numbers or as names."),
    )
    for labels, advice in forms:
        with pytest.raises(Misconfigured, match="expected") as caught:
            as_dataset((x, labels, x, labels))
        assert advice in str(caught.value)
    for label, shown in ((2.7, "2.7"), (torch.tensor(1.5), "1.5"), ("2", "'2'")):
        items = Listed(x, [*Y[:5].tolist(), label])
        with pytest.raises(Misconfigured, match=rf"item 5 has the label .*{shown}.* expected a whole number"):
            as_dataset((items, items))
    whole = Listed(x, [1.0, torch.tensor(0), np.int64(2), True])
    assert as_dataset((whole, whole)).train.labels.tolist() == [1, 0, 2, 1]
    with pytest.raises(Misconfigured, match=r"x_train has type .* Give the inputs as numbers"):
        as_dataset((x.astype(str), Y, x.astype(str), Y))


def noisy(x):
    """Draws from all three global generators."""
    return np.asarray(x) + random.random() + np.random.random() + float(torch.rand(()))


def states():
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


X = RNG.random((12, 4))


def test_transforms_that_draw_are_read_anew_by_their_draws_alone():
    dataset = as_dataset((Listed(X, Y, noisy), Listed(X, Y, noisy)))
    assert "draws random numbers, so every epoch reads its items again, about" in dataset.notes[0]
    assert "test items of Listed draw random numbers and are read once" in dataset.notes[1]
    samples = samples_of(dataset)
    assert samples.num_draws == 1
    places, draws = torch.tensor([3, 5, 3, 3]), torch.tensor([[0.25], [0.25], [0.5], [0.25]])
    before = states()
    inputs, labels = samples.batch(places, draws)
    assert states() == before
    assert labels.tolist() == Y[places].tolist()
    assert torch.equal(inputs[0], inputs[3])
    assert not torch.equal(inputs[0], inputs[2])
    torch.rand(3), np.random.random(3), random.random()  # a program of the user's goes on drawing
    again, _ = samples_of(as_dataset((Listed(X, Y, noisy), Listed(X, Y)))).batch(places[1:], draws[1:])
    assert torch.equal(again, inputs[1:])
    # Without draws a sample is what was read first, whatever the generators did before that.
    assert torch.equal(samples.batch(places)[0], torch.from_numpy(dataset.train.inputs[places]))
    assert as_dataset((Listed(X, Y, noisy), Listed(X, Y, noisy))).digest() == dataset.digest()


def test_transforms_that_draw_now_and_then_are_found():
    def rare(x):
        return np.asarray(x) + (torch.rand(()).item() if x[0] == X[11, 0] else 0.0)

    assert as_dataset((Listed(X, Y, rare), Listed(X, Y))).reader is not None
    assert as_dataset((Listed(X, Y), Listed(X, Y, rare))).reader is None
    assert as_dataset((Listed(X, Y), Listed(X, Y))).notes == ()


def test_pictures_that_are_read_anew_are_stored_like_the_first():
    def flipped(picture):
        return picture[:, ::-1] if torch.rand(()) < 0.5 else picture

    last = np.moveaxis(BYTES, 1, -1)
    samples = samples_of(as_dataset((Listed(last, Y, flipped), Listed(last, Y))))
    inputs, _ = samples.batch(torch.arange(12), torch.linspace(0, 0.9, 12)[:, None])
    for found, stored in zip(inputs.numpy(), BYTES / 255.0, strict=True):
        assert np.allclose(found, stored) or np.allclose(found, stored[..., ::-1])


def test_readings_that_cannot_be_repeated_are_refused():
    own = np.random.default_rng(1)
    with pytest.raises(Misconfigured, match=r"item 0 of Listed differs .* global generator"):
        as_dataset((Listed(X, Y, lambda x: x + own.random()), Listed(X, Y)))
    grown = Listed(X, Y, lambda x: x + random.random())
    samples = samples_of(as_dataset((grown, Listed(X, Y))))
    grown.change = lambda x: x[:2]
    with pytest.raises(RunFailed, match=r"item 1 of Listed has shape \(2,\)"):
        samples.batch(torch.tensor([1]), torch.zeros(1, 1))


def test_arrays_without_test_samples_lose_a_fifth():
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    dataset = as_dataset((x, y))
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    assert dataset.notes == ("test: none given, so 4 of 20 samples are held out, in the mix of their labels",)
    assert sorted([*dataset.train.inputs[:, 0], *dataset.test.inputs[:, 0]]) == x[:, 0].tolist()
    assert as_dataset((x, y), key=(3, 1)).digest() != dataset.digest()


def test_a_torch_dataset_without_test_samples_loses_a_fifth():
    """The samples that arrays would lose; items that draw random numbers are still read again."""
    x, y = RNG.random((20, 1, 4, 4), dtype=np.float32), np.arange(20) % 2
    listed, arrays = as_dataset(Listed(x, y)), as_dataset((x, y))
    assert listed.digest() == arrays.digest()
    assert listed.notes == arrays.notes
    moved = as_dataset(ShiftedImages(x, y, moved=True))
    assert moved.reader is not None
    assert (len(moved.train), len(moved.test)) == (16, 4)


def test_arrays_that_would_lose_something_are_refused():
    x, y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2
    for given, words in (
        ((np.ma.masked_greater(x, 9.0), y), r"x_train has masked values; .*filled"),
        ((x.astype(np.longdouble), y), r"x_train has type .*; expected at most float64"),
        ((x, np.array(["a", " "])[y]), "some labels are empty"),
        ((np.float64(1.0), np.int64(1), x, y), r"inputs of shape \(\) and labels of shape \(\)"),
    ):
        with pytest.raises(Misconfigured, match=words):
            as_dataset(given)


def test_inputs_and_labels_of_different_numbers_are_refused():
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    for given, words in (
        ((x, y[:15]), r"inputs of shape \(20, 2\) and labels of shape \(15,\); expected one label for each input"),
        ((x[:15], y), "expected one label for each input"),
        ((x, y, x, y[:3]), r"test inputs of shape \(20, 2\) and test labels of shape \(3,\)"),
        ((x, y, x), r"tuple with 3 parts; expected a name, arrays \(x, y\) or"),
    ):
        with pytest.raises(Misconfigured, match=words):
            as_dataset(given)
