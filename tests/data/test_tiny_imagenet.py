import numpy as np
import pytest

from fedblade.core.errors import Misconfigured
from fedblade.data.tiny_imagenet import tiny_imagenet, tiny_imagenet32
from support.made_files import TINY_IDS, pixels, save_table, save_tiny_folder


def test_the_original_folder_is_read_in_sorted_class_order(tmp_path):
    save_tiny_folder(tmp_path)
    dataset = tiny_imagenet(str(tmp_path))
    assert dataset.class_names == TINY_IDS
    assert dataset.train.inputs.shape == (200, 3, 64, 64)
    np.testing.assert_array_equal(dataset.train.inputs[:, 1, 5, 5], dataset.train.labels)
    assert dataset.test.labels.tolist() == [199, 0, 7, 100]
    np.testing.assert_array_equal(dataset.test.inputs[:, 2, 9, 9], dataset.test.labels)


def test_the_small_copy_averages_two_by_two_or_takes_its_own_size(tmp_path):
    large, small = pixels(3, 64), pixels(3, 32)
    for folder, images in (("large", large), ("small", small)):
        save_table(tmp_path / folder / "train.parquet", images, [3, 4, 199], image="image")
        save_table(tmp_path / folder / "valid.parquet", images[:1], [3], image="image")
    made = tiny_imagenet32(str(tmp_path / "large")).train.inputs
    mean = large.reshape(3, 3, 32, 2, 32, 2).astype(float).mean(axis=(3, 5))
    assert made.shape == (3, 3, 32, 32)
    assert np.abs(made - mean).max() <= 0.5
    np.testing.assert_array_equal(tiny_imagenet32(str(tmp_path / "small")).train.inputs, small)


def test_the_small_copy_is_found_under_the_name_of_the_large_one(tmp_path, monkeypatch):
    save_tiny_folder(tmp_path / "tiny_imagenet")
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    assert tiny_imagenet32().input_shape == (3, 32, 32)
    assert tiny_imagenet().input_shape == (3, 64, 64)


def test_mislabelled_and_missing_files_are_named(tmp_path):
    save_table(tmp_path / "small" / "train.parquet", pixels(2, 32), [0, 1], image="image")
    save_table(tmp_path / "small" / "valid.parquet", pixels(2, 32), [0, 1], image="image")
    with pytest.raises(Misconfigured, match=r"train.parquet row 0.*32×32 pixels; expected 64×64"):
        tiny_imagenet(str(tmp_path / "small"))
    save_tiny_folder(tmp_path)
    base = tmp_path / "tiny-imagenet-200"
    annotations = base / "val" / "val_annotations.txt"
    text = annotations.read_text()
    annotations.write_text(text.replace(TINY_IDS[7], "n99999999"))
    with pytest.raises(Misconfigured, match=r"val_annotations.txt' line 3 .*n99999999"):
        tiny_imagenet(str(tmp_path))
    annotations.write_text(text)
    (base / "val" / "images" / "val_3.JPEG").unlink()
    with pytest.raises(Misconfigured, match=r"val_3.JPEG' is missing; line 4"):
        tiny_imagenet(str(tmp_path))
    (base / "train" / TINY_IDS[5] / "images" / f"{TINY_IDS[5]}_0.JPEG").unlink()
    with pytest.raises(Misconfigured, match=rf"{TINY_IDS[5]}' holds no pictures"):
        tiny_imagenet(str(tmp_path))
    (base / "wnids.txt").unlink()
    with pytest.raises(Misconfigured, match=r"wnids.txt' is missing"):
        tiny_imagenet(str(tmp_path))


def test_tables_may_name_the_classes_freely_but_all_alike(tmp_path):
    save_table(tmp_path / "train.parquet", pixels(2, 32), [0, 1], image="image", names=TINY_IDS)
    save_table(tmp_path / "valid.parquet", pixels(1, 32), [0], image="image", names=TINY_IDS)
    assert tiny_imagenet32(str(tmp_path)).class_names == TINY_IDS
    save_table(tmp_path / "valid.parquet", pixels(1, 32), [0], image="image", names=TINY_IDS[::-1])
    with pytest.raises(
        Misconfigured, match=r"valid.parquet' names class 0 .* as in '.*train.parquet'. Check"
    ) as caught:
        tiny_imagenet32(str(tmp_path))
    assert "\n" not in str(caught.value)
    save_table(tmp_path / "valid.parquet", pixels(1, 32), [0], image="image", names=TINY_IDS[:9])
    with pytest.raises(Misconfigured, match=r"valid.parquet' names 9 classes in column 'label'; expected 200\. "):
        tiny_imagenet32(str(tmp_path))
