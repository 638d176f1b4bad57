"""Data of clients as one data set: what each may be, who is held out, and what does not fit together."""

import numpy as np
import pytest
from torch.utils.data import Dataset as TorchDataset

from fedblade.core.errors import Misconfigured
from fedblade.data import ClientData, as_dataset
from support.for_every import for_every
from support.shifted_images import ShiftedImages

RNG = np.random.default_rng(3)


def table(n, classes=(0, 1, 2)):
    return RNG.random((n, 4), dtype=np.float32), np.resize(classes, n)


class Listed(TorchDataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def of(given, seed=0):
    return ClientData.of(given).dataset(seed)


def members(part, client):
    return part.inputs[part.groups == client], part.labels[part.groups == client]


def test_clients_keep_their_order_their_names_and_their_test_samples():
    (x, y), (x_test, y_test) = table(10), table(5)
    dataset = of({"south": (x, y, x_test, y_test), "north": (x + 1, y, x_test + 1, y_test)})
    assert dataset.group_names == ("south", "north")
    for client in range(2):
        assert np.array_equal(members(dataset.train, client)[0], x + client)
        assert np.array_equal(members(dataset.test, client)[0], x_test + client)
    assert dataset.notes == ()


def test_labels_are_numbered_over_all_clients():
    dataset = of({"north": table(10, (10, 20)), "south": table(10, (30,))})
    assert dataset.label_values == (10, 20, 30)
    assert set(members(dataset.train, 1)[1]) == {2}


def test_a_fifth_is_held_out_in_the_mix_of_labels():
    x, y = table(100, (0, 0, 0, 1))
    data = ClientData.of({"north": (x, y), "south": (x, y), "east": (x, y, x[:3], y[:3])})
    first, again, other = (data.dataset(seed) for seed in (1, 1, 2))
    for client in range(2):
        kept, held = members(first.train, client), members(first.test, client)
        assert np.bincount(held[1]).tolist() == [15, 5]
        assert np.array_equal(np.sort(np.concatenate([kept[0], held[0]]), axis=0), np.sort(x, axis=0))
    assert not np.array_equal(members(first.test, 0)[0], members(first.test, 1)[0])
    assert len(members(first.test, 2)[0]) == 3
    assert first.digest() == again.digest() != other.digest()
    (note,) = first.notes
    assert note.startswith("test samples: north and south gave none, so a fifth of the client's samples is held out")


@pytest.mark.parametrize(("samples", "held"), [(1, 0), (2, 1), (4, 1), (9, 1), (10, 2), (14, 2), (15, 3)])
def test_of_few_samples_at_least_one_is_trained_on(samples, held):
    dataset = of({"tiny": table(samples, (0,)), "north": table(20)})
    assert len(members(dataset.test, 0)[0]) == held
    assert len(members(dataset.train, 0)[0]) == samples - held


def test_a_client_gives_arrays_lists_or_torch_datasets():
    x, y = table(20)
    arrays = of({"north": (x, y, x, y), "south": (x, y)})
    lists = of({"north": (x.tolist(), y.tolist(), x.tolist(), y.tolist()), "south": (x.tolist(), y.tolist())})
    listed = of({"north": (Listed(x, y), Listed(x, y)), "south": Listed(x, y)})
    mixed = of({"north": (x, y, x, y), "south": Listed(x, y)})
    assert arrays.digest() == listed.digest() == mixed.digest()
    assert np.allclose(lists.train.inputs, arrays.train.inputs)
    sets = {name: as_dataset((x, y, x, y)) for name in ("north", "south")}
    both = of({"north": (x, y, x, y), "south": (x, y, x, y)})
    assert of(sets).digest() == both.digest()


def test_random_transforms_are_read_again():
    x, y = RNG.random((20, 1, 4, 4), dtype=np.float32), np.arange(20) % 2
    moved = ShiftedImages(x, y, moved=True)
    dataset = of({"north": (moved, ShiftedImages(x, y)), "south": moved})
    assert dataset.reader is not None
    assert np.bincount(dataset.train.groups).tolist() == [20, 16]
    with pytest.raises(Misconfigured, match="client 'north': its torch dataset draws random numbers"):
        of({"north": moved, "south": (x, y)})


X, Y = table(12)
PICTURES = RNG.random((12, 1, 4, 4), dtype=np.float32)
REFUSED = {
    "an empty dict": ({}, "clients has 0 clients"),
    "one client": ({"north": (X, Y)}, "expected at least two"),
    "no dict": ([(X, Y), (X, Y)], "clients has type list; expected a dict"),
    "a number as name": ({1: (X, Y), 2: (X, Y)}, "clients has 1 .type int. as the name"),
    "an empty name": ({" ": (X, Y), "south": (X, Y)}, "printable characters"),
    "a line as name": ({"a\nb": (X, Y), "south": (X, Y)}, "printable characters"),
    "no samples": ({"north": (X, Y), "south": (X[:0], Y[:0])}, "client 'south': it has no samples"),
    "no items": ({"north": Listed(X, Y), "south": Listed(X[:0], Y[:0])}, "client 'south': it has no samples"),
    "three values": ({"north": (X, Y, X), "south": (X, Y)}, "client 'north': its data have 3 values; expected"),
    "a file": ({"north": "north.csv", "south": (X, Y)}, "type str; .*read by dataset='clients' with dataset.path"),
    "a number": ({"north": 3, "south": (X, Y)}, "client 'north': its data have type int; expected"),
    "fewer labels": ({"north": (X, Y[1:]), "south": (X, Y)}, "client 'north': there are inputs of shape"),
    "one class": ({"north": (X, Y * 0), "south": (X, Y * 0)}, "one class only"),
    "infinite": (
        {"north": (X, Y), "south": (np.where(X[[4]] == X, np.inf, X), Y)},
        "client 'south': NaN or infinite inputs in training sample 4;",
    ),
    "not a number": (
        {"north": (X, Y), "south": (X, Y, np.where(np.isin(X, X[[4, 7]]), np.nan, X), Y)},
        "client 'south': NaN or infinite inputs in test sample 4 and 1 other;",
    ),
    "labels of other kinds": (
        {"north": (X, Y), "south": (X, Y * 1.0)},
        "client 'north' has labels that are whole numbers, and client 'south' floating-point numbers",
    ),
    "other shapes": (
        {"north": (X, Y), "south": (X[:, :3], Y)},
        r"client 'north' has inputs of shape \[n, 4\] and type float32, and client 'south' shape \[n, 3\]",
    ),
    "other types": (
        {"north": (X, Y), "east": (X, Y), "south": ((X * 9).astype(int), Y)},
        r"client 'north' has inputs of .*float32, and client 'south' .*int64; expected one shape and one type",
    ),
    "another scale": (
        {"north": (PICTURES, Y), "south": (PICTURES * 255, Y)},
        "client 'north' has pictures with values up to 1, and client 'south' above 16; expected one scale",
    ),
    "other items": (
        {"north": Listed(X, Y), "south": Listed(X[:, :3], Y)},
        "client 'north' has inputs of .* and client 'south' shape",
    ),
    "another test part": ({"north": (X, Y, X[:, :3], Y), "south": (X, Y)}, "client 'north' has training inputs of"),
    "other classes": (
        {"north": as_dataset((X, Y, X, Y)), "south": as_dataset((X, Y % 2, X, Y % 2))},
        "client 'north' has a Dataset with num_classes = 3, and client 'south' num_classes = 2",
    ),
    "two forms": ({"north": as_dataset((X, Y, X, Y)), "south": (X, Y)}, "expected one form"),
}


@for_every(REFUSED)
def test_what_does_not_fit_is_refused(case):
    given, message = REFUSED[case]
    with pytest.raises(Misconfigured, match=message):
        of(given)
