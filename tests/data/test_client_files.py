"""A folder with one file for each client."""

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import datasets

RNG = np.random.default_rng(3)
X, Y = RNG.random((10, 4), dtype=np.float32), np.arange(10) % 3
ENTRY = datasets.get("clients")


def made(folder, **files):
    """The folder with an .npz file for each name; `__` stands for a folder."""
    for name, arrays in files.items():
        path = folder / f"{name.replace('__', '/')}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)
    return str(folder)


TRAIN = {"x": X, "y": Y}
WHOLE = {"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3]}


def test_files_and_folders_are_clients(tmp_path):
    path = made(tmp_path / "wards", south__train=TRAIN, south__test={"x": X[:2], "y": Y[:2]}, north=TRAIN, east=WHOLE)
    (tmp_path / "wards" / ".hidden").write_text("")
    assert ENTRY.clients(path) == ("east", "north", "south")
    dataset = ENTRY.make(path).dataset(0)
    assert dataset.group_names == ("east", "north", "south")
    assert np.bincount(dataset.train.groups).tolist() == [10, 8, 10]
    assert np.bincount(dataset.test.groups).tolist() == [3, 2, 2]
    assert dataset.source == "3 clients (arrays in an .npz file)"


def test_many_clients_are_read_in_the_order_of_their_names(tmp_path):
    path = made(tmp_path, **{f"ward{k:03}": {"x": X + k, "y": Y} for k in range(300)})
    dataset = ENTRY.make(path).dataset(0)
    assert len(dataset.group_names) == 300
    means = [dataset.train.inputs[dataset.train.groups == k].mean() for k in range(300)]
    assert means == sorted(means)


@pytest.mark.parametrize(
    ("files", "stray", "message"),
    [
        ({}, None, "has 0 clients; expected at least two"),
        ({"north": TRAIN}, None, "has 1 client; expected at least two: a file for each client"),
        ({"north": TRAIN, "south": TRAIN}, "notes.txt", "has 'notes.txt', which is no file of a client"),
        ({"north": TRAIN, "north__train": TRAIN}, None, "several files for client 'north'"),
        ({"north": TRAIN, "south__test": TRAIN}, None, "has no file 'train'"),
        ({"north": TRAIN, "south__train": TRAIN, "south__more": TRAIN}, None, "has 'more.npz'"),
        ({"north": TRAIN, "south__train": WHOLE, "south__test": TRAIN}, None, "client 'south': .*one part in each"),
        ({"north": TRAIN, "south": {"x": X}}, None, "client 'south': .* has no array 'y_train'"),
        ({"north": TRAIN, "south": {"x": X[:, 1:], "y": Y}}, None, "client 'north' has inputs of .* client 'south'"),
    ],
)
def test_folders_that_are_no_federation_are_refused(files, stray, message, tmp_path):
    folder = tmp_path / "wards"
    folder.mkdir()
    if stray:
        (folder / stray).write_text("")
    with pytest.raises(Misconfigured, match=message):
        ENTRY.make(made(folder, **files)).dataset(0)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    for path, message in (("", "needs a folder"), (str(tmp_path / "gone"), "does not exist"), (__file__, "is a file")):
        with pytest.raises(Misconfigured, match=message):
            ENTRY.clients(path)
