import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data.cifar import CIFAR10, CIFAR100, cifar10, cifar100
from fedblade.data.fashion_mnist import _CLASSES, fashion_mnist
from fedblade.data.image_folder import parquet
from support.made_files import (
    as_png,
    cifar10_records,
    pack,
    pixels,
    save_cifar10_binary,
    save_cifar100_binary,
    save_fashion,
    save_picture,
    save_table,
)


def test_the_binary_version_is_read_extracted_and_packed(tmp_path):
    folder = tmp_path / "there" / "cifar-10-batches-bin"
    images, labels = save_cifar10_binary(folder)
    pack(tmp_path / "cifar-10-binary.tar.gz", folder)
    for path in (folder, folder.parent, tmp_path / "cifar-10-binary.tar.gz"):
        dataset = cifar10(str(path))
        np.testing.assert_array_equal(dataset.train.inputs, images)
        np.testing.assert_array_equal(dataset.train.labels, labels)
        assert len(dataset.test) == 4
    assert dataset.class_names == CIFAR10
    assert dataset.unit == 255.0
    assert dataset.input_shape == (3, 32, 32)


def test_cifar100_takes_the_fine_label(tmp_path):
    images, fine = save_cifar100_binary(tmp_path / "cifar-100-binary")
    dataset = cifar100(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.inputs, images)
    np.testing.assert_array_equal(dataset.train.labels, fine)
    assert dataset.class_names == CIFAR100
    assert len(set(CIFAR100)) == 100
    assert list(CIFAR100) == sorted(CIFAR100)


def test_hub_tables_are_read_with_their_shards(tmp_path):
    images, labels = pixels(10, 32), np.arange(10)
    save_table(tmp_path / "plain_text" / "train-00000-of-00002.parquet", images[:6], labels[:6], names=CIFAR10)
    save_table(tmp_path / "plain_text" / "train-00001-of-00002.parquet", images[6:], labels[6:], names=CIFAR10)
    save_table(tmp_path / "plain_text" / "test-00000-of-00001.parquet", images[:3], labels[:3], names=CIFAR10)
    dataset = cifar10(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.inputs, images)
    np.testing.assert_array_equal(dataset.train.labels, labels)
    assert dataset.num_classes == 10


def test_cifar100_tables_use_the_fine_column(tmp_path):
    fine = [5, 99, 0]
    for part in ("train", "test"):
        save_table(tmp_path / f"{part}.parquet", pixels(3, 32), fine, label="fine_label", coarse_label=[0, 1, 2])
    assert cifar100(str(tmp_path)).train.labels.tolist() == fine


def test_an_extracted_folder_of_pictures_is_read(tmp_path):
    for part in ("train", "test"):
        for label, name in enumerate(CIFAR10):
            save_picture(tmp_path / part / name / "0001.png", np.full((3, 32, 32), label, np.uint8))
    dataset = cifar10(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.inputs[:, 0, 0, 0], dataset.train.labels)
    assert len(dataset.train) == 10


def refused(path, *words, load=cifar10):
    with pytest.raises(Misconfigured) as caught:
        load(str(path))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_the_pickle_version_is_refused_with_the_alternative(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x04.")
    refused(tmp_path, "cifar-10-batches-py", "pickle", "cifar-10-binary.tar.gz", "parquet")
    refused(tmp_path / "cifar-10-batches-py", "pickle", "cifar-10-binary.tar.gz")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cifar-100-python.tar.gz").write_bytes(b"")
    refused(tmp_path / "other", "pickle", "cifar-100-binary.tar.gz", load=cifar100)


def test_truncated_and_missing_batches_are_named(tmp_path):
    save_cifar10_binary(tmp_path)
    whole = (tmp_path / "data_batch_3.bin").read_bytes()
    (tmp_path / "data_batch_3.bin").write_bytes(whole[:-1])
    refused(tmp_path, "data_batch_3.bin", f"{len(whole) - 1} bytes", "multiple of 3073", "again")
    (tmp_path / "data_batch_3.bin").unlink()
    refused(tmp_path, "data_batch_3.bin", "missing")


def test_a_torn_archive_is_named(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    save_cifar10_binary(folder)
    archive = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    pack(archive, folder)
    archive.write_bytes(archive.read_bytes()[:-9000])
    refused(archive, "cifar-10-binary.tar.gz", "damaged")


def test_wrong_labels_are_named(tmp_path):
    save_cifar10_binary(tmp_path)
    data = bytearray(cifar10_records(3)[0])
    data[3073] = 12
    (tmp_path / "data_batch_2.bin").write_bytes(data)
    refused(tmp_path, "data_batch_2.bin", "record 1", "label 12", "0 to 9")


def test_wrong_tables_are_named(tmp_path):
    save_table(tmp_path / "test.parquet", pixels(2, 32), [0, 1])
    refused(tmp_path, "no train table")
    save_table(tmp_path / "train.parquet", pixels(4, 32), [0, 1, 10, 3])
    refused(tmp_path, "train.parquet row 2", "label 10", "0 to 9")
    save_table(tmp_path / "train.parquet", pixels(4, 32), [0, 1, 2, 3], names=["cat", "dog"])
    refused(tmp_path, "train.parquet", "2 classes", "expected 10")
    save_table(tmp_path / "train.parquet", pixels(4, 64), [0, 1, 2, 3])
    refused(tmp_path, "train.parquet row 0", "64×64", "32×32")
    save_table(tmp_path / "train.parquet", pixels(4, 32), [0, 1, 2, 3], label="klass")
    refused(tmp_path, "train.parquet", "no label column 'label'", "klass")
    (tmp_path / "train.parquet").write_bytes((tmp_path / "test.parquet").read_bytes()[:-20])
    refused(tmp_path, "train.parquet", "damaged", "again")


def test_names_in_another_order_or_of_another_part_are_refused(tmp_path):
    swapped = [CIFAR10[1], CIFAR10[0], *CIFAR10[2:]]
    save_table(tmp_path / "train.parquet", pixels(4, 32), [0, 1, 2, 3], names=CIFAR10)
    save_table(tmp_path / "test.parquet", pixels(2, 32), [0, 1], names=swapped)
    refused(tmp_path, "test.parquet' names class 0 'automobile' in column 'label'", "expected 'airplane'", "Check")
    save_table(tmp_path / "train.parquet", pixels(4, 32), [0, 1, 2, 3], names=swapped)
    refused(tmp_path, "train.parquet' names class 0 'automobile'", "expected 'airplane'")
    save_table(tmp_path / "train.parquet", pixels(4, 32), [0, 1, 2, 3])
    refused(tmp_path, "test.parquet' names class 0 'automobile'", "expected 'airplane'")
    broken = ["air\nplane", *CIFAR10[2:], "bus"]
    save_table(tmp_path / "test.parquet", pixels(2, 32), [0, 1], names=broken)
    refused(tmp_path, "test.parquet' names class 1 'bird'", "expected 'automobile'")


def test_the_spelling_of_the_hub_is_understood(tmp_path):
    written = ["cra" if name == "crab" else name.replace("_", " ").title() for name in CIFAR100]
    for part, count in (("train", 3), ("test", 2)):
        labels = list(range(count))
        save_table(tmp_path / f"{part}.parquet", pixels(count, 32), labels, label="fine_label", names=written)
    assert cifar100(str(tmp_path)).class_names == CIFAR100
    written = ["T - shirt / top", *_CLASSES[1:]]
    for part, count in (("train", 3), ("test", 2)):
        save_table(tmp_path / "f" / f"{part}.parquet", pixels(count, 28, 1), list(range(count)), names=written)
    assert fashion_mnist(str(tmp_path / "f")).class_names == _CLASSES


def test_the_same_file_as_both_parts_is_refused(tmp_path):
    save_table(tmp_path / "tables" / "train.parquet", pixels(2, 32), [0, 1])
    shutil.copy(tmp_path / "tables" / "train.parquet", tmp_path / "tables" / "test.parquet")
    refused(tmp_path / "tables", "train.parquet' and '", "test.parquet' are the same, byte for byte", "again")
    save_cifar10_binary(tmp_path / "binary")
    shutil.copy(tmp_path / "binary" / "data_batch_2.bin", tmp_path / "binary" / "test_batch.bin")
    refused(tmp_path / "binary", "data_batch_2.bin' and '", "test_batch.bin' are the same")
    save_fashion(tmp_path / "idx")
    for kind in ("images-idx3", "labels-idx1"):
        shutil.copy(tmp_path / "idx" / f"train-{kind}-ubyte.gz", tmp_path / "idx" / f"t10k-{kind}-ubyte.gz")
    refused(tmp_path / "idx", "t10k-images-idx3-ubyte.gz' are the same", load=fashion_mnist)


def test_labels_of_another_type_are_named(tmp_path):
    for seed, part in enumerate(("train", "test")):
        cells = [{"bytes": as_png(each)} for each in pixels(2, 32, seed=seed)]
        pq.write_table(pa.table({"img": cells, "label": ["cat", "dog"]}), tmp_path / f"{part}.parquet")
    refused(tmp_path, "train.parquet' has labels of type string in column 'label'", "expected integers", "Convert")
    refused(tmp_path, "train.parquet' has labels of type string in column 'label'", load=parquet)


def test_a_missing_shard_and_an_empty_cell_are_named(tmp_path):
    save_table(tmp_path / "test.parquet", pixels(2, 32), [0, 1])
    save_table(tmp_path / "train-00001-of-00003.parquet", pixels(2, 32), [0, 1])
    save_table(tmp_path / "train-00002-of-00003.parquet", pixels(2, 32), [0, 1])
    refused(tmp_path, "shard 00000 of 00003")
    for file in tmp_path.glob("train-*"):
        file.unlink()
    save_table(tmp_path / "train.parquet", pixels(3, 32), [0, None, 1])
    refused(tmp_path, "train.parquet' row 1", "no 'label'")


def test_a_damaged_picture_is_named_not_skipped(tmp_path):
    save_table(tmp_path / "test.parquet", pixels(2, 32), [0, 1])
    whole = [as_png(each) for each in pixels(3, 32)]
    for broken in (whole[1][:-900], b"no picture at all"):
        cells = [{"bytes": each} for each in (whole[0], broken, whole[2])]
        pq.write_table(pa.table({"img": cells, "label": [0, 1, 2]}), tmp_path / "train.parquet")
        refused(tmp_path, "train.parquet row 1", "cannot be decoded")


def test_a_strange_folder_says_what_was_expected(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path, "notes.txt", "cifar-10-batches-bin", ".parquet")
    refused(tmp_path / "nowhere", "nowhere", "does not exist")
    for name in ("cat", "dog"):
        for part in ("train", "test"):
            save_picture(tmp_path / "two" / part / name / "a.png", pixels(1, 32)[0])
    refused(tmp_path / "two", "2 class folders", "expected 10")
