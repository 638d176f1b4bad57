"""A node's samples: what goes wrong is told without the words of the user's code, which may hold data."""

import io
import sys
import zipfile

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.flower._node_data import own_dataset

SECRET = "patient 7, John Doe"
NAMES = ("x_train", "y_train", "x_test", "y_test")


@pytest.fixture
def module(tmp_path):
    """Writes a module of the user's."""

    def write(text):
        (tmp_path / "own_ward.py").write_text(text.replace("SECRET", repr(SECRET)))
        return f"{tmp_path / 'own_ward.py'}:samples"

    before = list(sys.path)
    yield write
    sys.path[:] = before


DATASET = """
class Ward:
    def __len__(self):
        return 3
    def __getitem__(self, i):
        {body}
def samples():
    return Ward(), Ward()
"""
FRAME = """
import pandas
def samples():
    x = pandas.DataFrame({{"x": {cells}, "other": [1.0, 2.0, 3.0]}})
    return x, [0, 1, 0], x, [0, 1, 0]
"""
ARRAY = """
class Ward:
    def __array__(self, *_, **__):
        raise {error}(SECRET)
def samples():
    return {given}
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise RuntimeError(SECRET)", "RuntimeError"),
        ("raise ImportError(SECRET)", "ImportError"),
        ("raise AttributeError(SECRET)", "AttributeError"),
        ("raise ModuleNotFoundError(SECRET)", "ModuleNotFoundError"),
        ("import no_such_module_of_theirs", "ModuleNotFoundError"),
        ("def __getattr__(name):\n    raise KeyError(SECRET)", "KeyError"),
        ("def samples():\n    raise ZeroDivisionError(SECRET)", "ZeroDivisionError"),
        ("def samples():\n    raise AttributeError(SECRET)", "AttributeError"),
        (DATASET.format(body="raise ValueError(SECRET)"), "ValueError"),
        (DATASET.format(body="raise IndexError(SECRET)"), "IndexError"),
        (DATASET.format(body="return [0.0, 1.0], SECRET"), "ValueError"),
        (ARRAY.format(error="ValueError", given="Ward(), [0], [[1.0]], [0]"), "ValueError"),
        (ARRAY.format(error="OSError", given="Ward(), [0], [[1.0]], [0]"), "OSError"),
        (ARRAY.format(error="ValueError", given="[[1.0]], Ward(), [[1.0]], [0]"), "ValueError"),
        (FRAME.format(cells="pandas.to_datetime(['1970-02-03'] * 3)"), "QuotesData"),
    ],
)
def test_what_a_users_code_says_is_not_told(text, error, module):
    source = module(text)
    with pytest.raises(Misconfigured) as failed:
        own_dataset(source, 10)
    assert str(failed.value) == f"data = '{source}' failed with a {error}. The node's log says more."
    assert failed.value.__cause__ is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def samples():\n    return 3", "dataset is of type int; expected"),
        ("def samples():\n    return [[1.0]], [11], [[1.0]], [0]", "1 labels lie outside of the run's classes 0 to 9"),
        ("def samples():\n    return [[1.0]], [0.5], [[1.0]], [0]", "labels have shape (1,) and type float64"),
        ("def samples():\n    return [['a']], [0], [[1.0]], [0]", "x_train has type <U1; expected integers or real"),
        ("other = 1", "own_ward.py' has no attribute 'samples'"),
        (FRAME.format(cells="[1, 2, 3]"), "the function returns a table, or the nodes have agreed on a table"),
    ],
)
def test_what_is_wrong_with_shapes_and_labels_is_told(text, said, module):
    source = module(text)
    with pytest.raises(Misconfigured) as failed:
        own_dataset(source, 10)
    assert said in str(failed.value)


def test_a_module_beside_the_file_is_found_and_one_in_the_current_folder_is_not(module, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for folder, value in (("elsewhere", "[[2.0]]"), (".", "[[1.0]]")):
        (tmp_path / folder / "ward_helper.py").write_text(f"INPUTS = {value}\n")
    (tmp_path / "elsewhere" / "json.py").write_text("raise SystemExit('planted')\n")
    found = own_dataset(
        module(
            "import json\nfrom ward_helper import INPUTS\n\n\ndef samples():\n    return INPUTS, [0], INPUTS, [0]\n"
        ),
        10,
    )
    sys.modules.pop("ward_helper")
    assert found.train.inputs.ravel().tolist() == [1.0]
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    with pytest.raises(Misconfigured, match="No module named 'ward_helper'"):
        own_dataset("ward_helper:samples", 10)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(Misconfigured, match=r"cannot be found \(No module named 'no_ward_here'\)"):
        own_dataset("no_ward_here:samples", 10)
    with pytest.raises(Misconfigured, match=r"cannot be found \(No module named 'json.no_ward_here'\)"):
        own_dataset("json.no_ward_here:samples", 10)


def torn(folder):
    """An array whose header is something else."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    content = buffer.getvalue()
    with zipfile.ZipFile(folder / "own.npz", "w") as file:
        file.writestr("x_train.npy", content[:10] + SECRET.encode().ljust(118) + content[128:])


def objects(folder):
    np.savez(folder / "own.npz", **dict.fromkeys(NAMES, np.array([{SECRET: 1}], dtype=object)))


def text(folder):
    (folder / "own.npz").write_text(SECRET)


@pytest.mark.parametrize("write", [torn, objects, text])
def test_a_broken_file_is_told_without_what_is_in_it(write, tmp_path):
    write(tmp_path)
    with pytest.raises(Misconfigured, match=r"cannot be read as an .npz file of plain arrays \(\w+\). Write") as failed:
        own_dataset(str(tmp_path / "own.npz"), 10)
    assert "John" not in str(failed.value)


def test_a_file_without_an_array_is_told_which(tmp_path):
    np.savez(tmp_path / "own.npz", **{name: np.zeros(2, dtype=int) for name in NAMES if name != "x_test"})
    with pytest.raises(Misconfigured, match="has no array 'x_test'; expected x_train, y_train, x_test, y_test"):
        own_dataset(str(tmp_path / "own.npz"), 10)


def test_names_and_tables_need_what_only_all_nodes_together_know(tmp_path):
    x = np.random.default_rng(0).random((6, 3), dtype=np.float32)
    np.savez(tmp_path / "named.npz", x=x, y=np.array(["cat", "dog"] * 3))
    with pytest.raises(
        Misconfigured, match=r"labels are names, and a node does not know those of all nodes. Let every"
    ):
        own_dataset(str(tmp_path / "named.npz"), 10)
    (tmp_path / "ward.csv").write_text("age,label\n1,0\n2,1\n3,1\n")
    with pytest.raises(
        Misconfigured, match=r"holds a table: it is encoded by means.* Let every hospital give `fedblade flower"
    ):
        own_dataset(str(tmp_path / "ward.csv"), 10)
