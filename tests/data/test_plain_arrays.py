"""SVHN's .mat files and Fashion-MNIST's IDX files."""

import gzip

import numpy as np
import pytest
from scipy.io import savemat

from fedblade.core.errors import Misconfigured
from fedblade.data import fashion_mnist as fashion_module
from fedblade.data.fashion_mnist import fashion_mnist
from fedblade.data.svhn import svhn
from support.made_files import pixels, save_fashion, save_idx, save_table


def save_svhn(folder, labels=(1, 10, 9, 5)):
    for part, seed in (("test", 1), ("train", 0)):
        images = pixels(len(labels), 32, seed=seed)
        savemat(folder / f"{part}_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": np.array([labels]).T})
    return images


def test_svhn_turns_label_ten_into_zero(tmp_path):
    images = save_svhn(tmp_path)
    dataset = svhn(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.inputs, images)
    assert dataset.train.labels.tolist() == [1, 0, 9, 5]
    assert dataset.num_classes == 10


def test_svhn_tables_are_read(tmp_path):
    for part in ("train", "test"):
        save_table(tmp_path / "cropped_digits" / f"{part}-00000-of-00001.parquet", pixels(2, 32), [0, 9], image="image")
    assert svhn(str(tmp_path)).train.labels.tolist() == [0, 9]


def test_wrong_mat_files_are_named(tmp_path):
    save_svhn(tmp_path)
    train = tmp_path / "train_32x32.mat"
    whole = train.read_bytes()
    train.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Misconfigured, match=r"train_32x32.mat' is damaged"):
        svhn(str(tmp_path))
    savemat(train, {"X": np.zeros((4, 4, 3, 2), np.uint8), "y": np.array([[1], [2]])})
    with pytest.raises(Misconfigured, match=r"shape \(4, 4, 3, 2\).*expected \(32, 32, 3, n\)"):
        svhn(str(tmp_path))
    savemat(train, {"X": np.zeros((32, 32, 3, 2), np.uint8)})
    with pytest.raises(Misconfigured, match=r"no variable 'y'"):
        svhn(str(tmp_path))
    save_svhn(tmp_path, labels=(1, 11))
    with pytest.raises(Misconfigured, match=r"labels from 1 to 11; expected 1 to 10"):
        svhn(str(tmp_path))
    train.unlink()
    with pytest.raises(Misconfigured, match=r"train_32x32.mat' is missing"):
        svhn(str(tmp_path))


@pytest.mark.parametrize("compress", [True, False])
def test_fashion_mnist_reads_idx(tmp_path, compress):
    made = save_fashion(tmp_path, compress=compress)
    dataset = fashion_mnist(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.inputs[:, 0], made["train-x"])
    np.testing.assert_array_equal(dataset.test.inputs[:, 0], made["t10k-x"])
    np.testing.assert_array_equal(dataset.test.labels, made["t10k-y"])
    assert dataset.input_shape == (1, 28, 28)
    assert dataset.class_names[9] == "Ankle boot"


def test_fashion_mnist_is_found_where_debian_puts_it(tmp_path, monkeypatch):
    from dataclasses import replace

    assert str(fashion_module._FASHION.system[0]) == "/usr/share/datasets/fashion-mnist"
    save_fashion(tmp_path / "debian")
    monkeypatch.setattr(fashion_module, "_FASHION", replace(fashion_module._FASHION, system=(tmp_path / "debian",)))
    assert len(fashion_mnist().train) == 12


def test_wrong_idx_files_are_named(tmp_path):
    save_fashion(tmp_path)
    images, labels = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte.gz"
    whole, plain = images.read_bytes(), gzip.decompress(images.read_bytes())
    for broken, words in (
        (whole[: len(whole) // 2], "is damaged"),
        (gzip.compress(plain[:-1]), "header promises 9408"),
        (gzip.compress(b"\x00\x00\x0d\x03" + plain[4:]), "does not start like an IDX file"),
    ):
        images.write_bytes(broken)
        with pytest.raises(Misconfigured, match=rf"{images.name}.*{words}"):
            fashion_mnist(str(tmp_path))
    images.write_bytes(whole)
    save_idx(labels, np.arange(11) % 10)
    with pytest.raises(Misconfigured, match=r"shape \(12, 28, 28\) for 11 labels"):
        fashion_mnist(str(tmp_path))
    save_idx(labels, np.arange(12))
    with pytest.raises(Misconfigured, match=rf"{labels.name}' has label 11"):
        fashion_mnist(str(tmp_path))
    labels.unlink()
    with pytest.raises(Misconfigured, match=r"train-labels-idx1-ubyte' \(or .*gz\) is missing"):
        fashion_mnist(str(tmp_path))
