import json
import string

import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data.leaf import ALPHABET, femnist, shakespeare
from support.made_files import save_leaf


def writer(count: int, seed: int):
    stored = np.random.default_rng(seed).integers(0, 256, (count, 784))
    return (stored / 255).tolist(), [(seed + 7 * i) % 62 for i in range(count)], stored


def test_femnist_gives_back_the_bytes_and_the_writers(tmp_path):
    made = {name: writer(3 + i, i) for i, name in enumerate(("f0001_41", "f0002_17", "f0000_14"))}
    users = {name: (x, y) for name, (x, y, _) in made.items()}
    save_leaf(tmp_path, "train", "all_data_0_train.json", dict(list(users.items())[:2]))
    save_leaf(tmp_path, "train", "all_data_1_train.json", dict(list(users.items())[2:]))
    save_leaf(tmp_path, "test", "all_data_0_test.json", {"f0000_14": users["f0000_14"], "f0001_41": users["f0001_41"]})
    dataset = femnist(str(tmp_path))
    assert dataset.group_names == tuple(made)
    assert dataset.train.groups.tolist() == [0] * 3 + [1] * 4 + [2] * 5
    assert dataset.test.groups.tolist() == [2] * 5 + [0] * 3
    stored = np.concatenate([pixels for _, _, pixels in made.values()])
    np.testing.assert_array_equal(dataset.train.inputs.reshape(-1, 784), stored)
    assert dataset.train.labels[3:7].tolist() == users["f0002_17"][1]
    assert dataset.num_classes == 62
    assert dataset.class_names[10] == "A"


def test_shakespeare_numbers_characters_by_leafs_alphabet(tmp_path):
    assert len(ALPHABET) == 80
    assert len(set(ALPHABET)) == 80
    text = ("To be, or not to be: that is the question; " * 3)[:81]
    users = {"HAMLET": ([text[:80]], [text[80]]), "OPHELIA": ([text[:80][::-1]], ["}"])}
    save_leaf(tmp_path, "train", "a.json", users)
    save_leaf(tmp_path, "test", "a.json", users)
    dataset = shakespeare(str(tmp_path))
    assert "".join(ALPHABET[i] for i in dataset.train.inputs[0]) == text[:80]
    assert ALPHABET[dataset.train.labels[0]] == text[80]
    assert dataset.train.labels[1] == 79
    assert dataset.input_shape == (80,)
    assert (dataset.unit, dataset.mean, dataset.std) == (1.0, (0.0,), (1.0,))
    assert dataset.group_names == ("HAMLET", "OPHELIA")
    assert set(string.ascii_letters) < set(dataset.class_names)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([[0.5] * 783], [1], "f1.*783"),
        ([[1.5] * 784], [1], "f1.*outside 0 to 1"),
        ([[0.5] * 784], [62], "f1.*0 to 61"),
        ([[0.5] * 784] * 2, [3], "f1.*2 inputs and 1 labels"),
    ],
)
def test_wrong_writers_are_named(tmp_path, x, y, words):
    for part in ("train", "test"):
        save_leaf(tmp_path, part, "a.json", {"f1": (x, y)})
    with pytest.raises(Misconfigured, match=rf"train/a.json' has wrong data for user '{words}"):
        femnist(str(tmp_path))


def test_wrong_texts_and_files_are_named(tmp_path):
    save_leaf(tmp_path, "test", "a.json", {"HAMLET": (["a" * 80], ["b"])})
    with pytest.raises(Misconfigured, match=r"train' holds no .json files"):
        shakespeare(str(tmp_path))
    save_leaf(tmp_path, "train", "a.json", {"HAMLET": (["a" * 79 + "é"], ["b"])})
    with pytest.raises(Misconfigured, match=r"HAMLET.*outside LEAF's alphabet: \['é'\]"):
        shakespeare(str(tmp_path))
    save_leaf(tmp_path, "train", "a.json", {"HAMLET": (["a" * 79], ["b"])})
    with pytest.raises(Misconfigured, match=r"not 80 characters long"):
        shakespeare(str(tmp_path))
    file = tmp_path / "data" / "train" / "a.json"
    file.write_text(file.read_text()[:-10])
    with pytest.raises(Misconfigured, match=r"a.json' is damaged or not a LEAF file"):
        shakespeare(str(tmp_path))
    file.write_text(json.dumps({"users": ["HAMLET"]}))
    with pytest.raises(Misconfigured, match=r"a.json' is damaged or not a LEAF file.*user_data"):
        shakespeare(str(tmp_path))
