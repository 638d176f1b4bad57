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
        (
            {"north": TRAIN, "south__train": WHOLE, "south__test": TRAIN},
            None,
            "client 'south': .*one of the two files has test samples besides",
        ),
        ({"north": TRAIN, "south": {"x": X}}, None, "client 'south': .* has no array 'y_train'"),
        ({"north__cat__train": TRAIN, "south": TRAIN}, None, "has 'cat', .*Pictures are read by --set dataset=image_"),
        ({"north": TRAIN, "south": TRAIN}, "east.png", "has 'east.png', .*as the arrays x and y in an .npz file"),
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


def test_tables_of_clients_are_encoded_alike_and_names_are_numbered_together(tmp_path):
    """The means, deviations and categories are those of all training rows together."""
    folder = tmp_path / "wards"
    folder.mkdir()
    rows = {
        "north": ["1,red,sick", "3,red,well", "5,blue,well"],
        "south": ["7,green,well", "9,red,gone"],
        "test": ["5,green,sick", "1,black,gone"],
    }
    text = {name: "\n".join(("age,colour,label", *lines, "")) for name, lines in rows.items()}
    for name in ("north", "south"):
        (folder / name).mkdir()
        (folder / name / "train.csv").write_text(text[name])
        (folder / name / "test.csv").write_text(text["test"])
    dataset = ENTRY.make(str(folder)).dataset(0)
    together = tmp_path / "all.csv"
    together.write_text("\n".join(("age,colour,label", *rows["north"], *rows["south"], "")))
    (tmp_path / "test.csv").write_text(text["test"])
    whole = datasets.get("files").make(str(together), str(tmp_path / "test.csv"))
    assert np.array_equal(dataset.train.inputs, whole.train.inputs)
    assert np.array_equal(dataset.train.labels, whole.train.labels)
    assert dataset.label_values == ("gone", "sick", "well")
    assert dataset.encoding == whole.encoding
    assert dataset.train.groups.tolist() == [0, 0, 0, 1, 1]


def test_clients_with_tables_and_with_arrays_are_refused(tmp_path):
    path = made(tmp_path, north=TRAIN)
    (tmp_path / "south.csv").write_text("a,label\n1,0\n2,1\n")
    with pytest.raises(Misconfigured, match="client 'south' has a table, and client 'north' arrays"):
        ENTRY.make(path).dataset(0)
