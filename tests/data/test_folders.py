"""Pictures in folders: ImageNet-100, the domain sets, Fed-ISIC2019 and a user's own."""

import shutil

import numpy as np
import pytest
from PIL import Image

from fedblade.core.errors import Misconfigured
from fedblade.data._pictures import Fit, Picture, decode
from fedblade.data.domains import _DOMAINNET, _OFFICE, domainnet, office_caltech10
from fedblade.data.fed_isic2019 import fed_isic2019
from fedblade.data.image_folder import image_folder, parquet
from fedblade.data.imagenet100 import imagenet100
from support.made_files import pixels, save_jpeg, save_picture, save_table

IDS = [f"n{i:08d}" for i in range(103)]


def save_imagenet(root):
    for i, name in enumerate(IDS):
        for part in ("train", "val"):
            save_jpeg(root / part / name / f"{name}_1.JPEG", 24, 16, seed=i)


def test_imagenet100_takes_the_first_hundred_ids_or_a_list(tmp_path):
    save_imagenet(tmp_path)
    dataset = imagenet100(str(tmp_path))
    assert dataset.class_names == tuple(IDS[:100])
    assert dataset.train.inputs.shape == (100, 3, 256, 256)
    assert dataset.input_shape == (3, 224, 224)
    chosen = IDS[:2:-1]
    (tmp_path / "mine.txt").write_text("\n".join(chosen))
    listed = imagenet100(str(tmp_path), classes=str(tmp_path / "mine.txt"))
    assert listed.class_names == tuple(chosen)
    assert listed.fingerprint != dataset.fingerprint
    (tmp_path / "classes.txt").write_text("\n".join(chosen))
    assert imagenet100(str(tmp_path)).class_names == tuple(chosen)


def test_imagenet100_refuses_other_numbers_of_classes(tmp_path):
    save_jpeg(tmp_path / "train" / IDS[0] / "a.JPEG", 8, 8)
    save_jpeg(tmp_path / "val" / IDS[0] / "a.JPEG", 8, 8)
    with pytest.raises(Misconfigured, match=r"train' names 1 different classes; expected 100"):
        imagenet100(str(tmp_path))
    with pytest.raises(Misconfigured, match=r"nothing.txt' does not exist"):
        imagenet100(str(tmp_path), classes="nothing.txt")


def test_imagenet100_without_its_files_answers_the_same_request_only(tmp_path, cache):
    save_imagenet(cache / "imagenet100")
    (tmp_path / "B.txt").write_text("\n".join(IDS[3:]))
    default = imagenet100()
    shutil.rmtree(cache / "imagenet100")
    assert imagenet100().fingerprint == default.fingerprint
    with pytest.raises(Misconfigured, match=r"'imagenet100' is not on this machine"):
        imagenet100(classes=str(tmp_path / "B.txt"))
    with pytest.raises(Misconfigured, match=r"nosuch.txt' does not exist"):
        imagenet100(classes="nosuch.txt")
    (tmp_path / "short.txt").write_text("n00000001")
    with pytest.raises(Misconfigured, match=r"short.txt' names 1 different classes"):
        imagenet100(classes=str(tmp_path / "short.txt"))
    save_imagenet(cache / "imagenet100")
    listed = imagenet100(classes=str(tmp_path / "B.txt"))
    shutil.rmtree(cache / "imagenet100")
    (tmp_path / "B.txt").rename(tmp_path / "C.txt")
    again = imagenet100(classes=str(tmp_path / "C.txt"))
    assert (again.fingerprint, again.class_names) == (listed.fingerprint, tuple(IDS[3:]))
    assert imagenet100().fingerprint == default.fingerprint


def test_covering_keeps_proportions_and_squashing_does_not(tmp_path):
    # Left half black, right half white: after covering, the middle column still parts them; a wide picture's ends go.
    wide = np.zeros((3, 64, 128), np.uint8)
    wide[:, :, 64:] = 255
    wide[0, :, :32] = 200
    save_picture(tmp_path / "wide.png", wide)
    covered = decode(Picture(tmp_path / "wide.png", 0), Fit(32, "cover"))
    assert covered.shape == (3, 32, 32)
    assert covered[0, :, 2:14].max() == 0
    assert covered[1, :, 18:].min() == 255
    squashed = decode(Picture(tmp_path / "wide.png", 0), Fit(32, "squash"))
    assert squashed[0, :, 1:6].min() == 200
    grey = decode(Picture(tmp_path / "wide.png", 0), Fit(32, "cover", channels=1))
    assert grey.shape == (1, 32, 32)


def test_every_mode_of_picture_becomes_colour(tmp_path):
    for mode in ("L", "P", "RGBA", "CMYK", "1"):
        path = tmp_path / f"{mode}.tif"
        Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(path)
        np.testing.assert_array_equal(decode(Picture(path, 0), Fit(8)), np.full((3, 8, 8), 255))


def save_domains(root, layout, per_class=5):
    for d, domain in enumerate(layout.domains):
        for c, name in enumerate(layout.classes):
            for i in range(per_class):
                save_picture(root / domain / name / f"frame_{i:04d}.jpg", np.full((3, 4, 6), 20 * d + c, np.uint8))


def test_office_splits_each_domain_the_same_way_every_time(tmp_path):
    save_domains(tmp_path, _OFFICE)
    dataset = office_caltech10(str(tmp_path))
    assert dataset.group_names == ("amazon", "caltech", "dslr", "webcam")
    assert dataset.input_shape == (3, 256, 256)
    for part, size in ((dataset.train, 40), (dataset.test, 10)):
        assert np.bincount(part.groups).tolist() == [size] * 4
        np.testing.assert_array_equal(part.inputs[:, 0, 128, 128], 20 * part.groups + part.labels)
    again = office_caltech10(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.labels, again.train.labels)


def test_domainnet_follows_its_lists_and_keeps_ten_classes(tmp_path):
    save_domains(tmp_path, _DOMAINNET, per_class=2)
    for domain in _DOMAINNET.domains:
        save_picture(tmp_path / domain / "zigzag" / "a.jpg", pixels(1, 4)[0])
        for part, i in (("train", 1), ("test", 0)):
            lines = [f"{domain}/{name}/frame_{i:04d}.jpg 7" for name in _DOMAINNET.classes]
            (tmp_path / f"{domain}_{part}.txt").write_text("\n".join([*lines, f"{domain}/zigzag/a.jpg 344"]))
    dataset = domainnet(str(tmp_path))
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (60, 60, 10)
    assert dataset.group_names == _DOMAINNET.domains
    np.testing.assert_array_equal(dataset.test.labels, np.tile(np.arange(10), 6))
    (tmp_path / "real" / "tiger" / "frame_0001.jpg").unlink()
    with pytest.raises(Misconfigured, match=r"real/tiger/frame_0001.jpg' is missing; real_train.txt"):
        domainnet(str(tmp_path))
    (tmp_path / "real_train.txt").write_text("../../etc/passwd 3")
    with pytest.raises(Misconfigured, match=r"real_train.txt' has the line"):
        domainnet(str(tmp_path))


def test_missing_domains_and_classes_are_named(tmp_path):
    save_domains(tmp_path, _OFFICE, per_class=2)
    for file in (tmp_path / "dslr" / "mug").iterdir():
        file.unlink()
    with pytest.raises(Misconfigured, match=r"dslr/mug' holds no pictures"):
        office_caltech10(str(tmp_path))
    (tmp_path / "dslr" / "mug").rmdir()
    with pytest.raises(Misconfigured, match=r"dslr' has no folder 'mug'"):
        office_caltech10(str(tmp_path))
    (tmp_path / "dslr").rename(tmp_path / "elsewhere")
    with pytest.raises(Misconfigured, match=r"no domain folder 'dslr'; expected amazon"):
        office_caltech10(str(tmp_path))


def save_isic(root, rows):
    header = "image,MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK,target,center,fold,fold2"
    lines = []
    for i, (target, centre, fold) in enumerate(rows):
        one_hot = ",".join("1.0" if c == target else "0.0" for c in range(9))
        lines.append(f"ISIC_{i:07d},{one_hot},{target},{centre},{fold},{fold}_{centre}")
        save_jpeg(root / "ISIC_2019_Training_Input_preprocessed" / f"ISIC_{i:07d}.jpg", 298, 224, seed=i)
    (root / "train_test_split").write_text("\n".join([header, *lines]) + "\n")


def test_fed_isic_follows_flambys_table(tmp_path):
    save_isic(tmp_path, [(1, 0, "train"), (7, 3, "train"), (2, 3, "test"), (0, 0, "train")])
    dataset = fed_isic2019(str(tmp_path))
    assert dataset.train.labels.tolist() == [1, 7, 0]
    assert dataset.train.groups.tolist() == [0, 1, 0]
    assert dataset.test.groups.tolist() == [1]
    assert dataset.group_names == ("centre 0", "centre 3")
    assert dataset.input_shape == (3, 200, 200)
    picture = tmp_path / "ISIC_2019_Training_Input_preprocessed" / "ISIC_0000001.jpg"
    centre = np.asarray(Image.open(picture)).transpose(2, 0, 1)[:, :, 37:261]
    np.testing.assert_array_equal(dataset.train.inputs[1], centre)


def test_wrong_isic_tables_are_named(tmp_path):
    save_isic(tmp_path, [(1, 0, "train"), (8, 3, "train")])
    with pytest.raises(Misconfigured, match=r"train_test_split' line 3 says fold 'train' and target '8'"):
        fed_isic2019(str(tmp_path))
    save_isic(tmp_path, [(1, 0, "train"), (2, 3, "test")])
    (tmp_path / "ISIC_2019_Training_Input_preprocessed" / "ISIC_0000001.jpg").unlink()
    with pytest.raises(Misconfigured, match=r"ISIC_0000001.jpg' is missing; line 3"):
        fed_isic2019(str(tmp_path))
    (tmp_path / "train_test_split").write_text("image,target\n")
    with pytest.raises(Misconfigured, match=r"no column 'center'"):
        fed_isic2019(str(tmp_path))
    (tmp_path / "train_test_split").unlink()
    with pytest.raises(Misconfigured, match=r"train_test_split' is missing. Copy it from FLamby"):
        fed_isic2019(str(tmp_path))


def test_a_users_folder_is_normalised_by_its_own_statistics(tmp_path):
    images = pixels(6, 10)
    for part, chosen in (("train", range(4)), ("val", range(4, 6))):
        for i in chosen:
            save_picture(tmp_path / part / ("cat", "dog")[i % 2] / f"{i}.png", images[i])
    dataset = image_folder(str(tmp_path))
    assert dataset.class_names == ("cat", "dog")
    np.testing.assert_array_equal(dataset.train.inputs, images[[0, 2, 1, 3]])
    train = images[:4] / 255.0
    np.testing.assert_allclose(dataset.mean, train.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(dataset.std, train.std(axis=(0, 2, 3)), rtol=1e-12)
    grey = image_folder(str(tmp_path), size=5, channels=1)
    assert grey.input_shape == (1, 5, 5)
    assert len(grey.mean) == 1


def test_a_folder_without_a_test_part_can_be_split(tmp_path):
    for i in range(10):
        save_picture(tmp_path / ("cat", "dog")[i % 2] / f"{i}.png", np.full((3, 4, 4), i, np.uint8))
    with pytest.raises(Misconfigured, match=r"no test part.*dataset.test_share"):
        image_folder(str(tmp_path))
    dataset = image_folder(str(tmp_path), test_share=0.3)
    held = [set(part.inputs[:, 0, 0, 0].tolist()) for part in (dataset.train, dataset.test)]
    assert len(held[1]) == 3
    assert held[0] | held[1] == set(range(10))


def test_wrong_folders_of_a_user_are_named(tmp_path):
    with pytest.raises(Misconfigured, match=r"needs a folder: --set dataset.path"):
        image_folder()
    save_picture(tmp_path / "train" / "cat" / "a.png", pixels(1, 8)[0])
    save_picture(tmp_path / "train" / "dog" / "b.png", pixels(1, 9)[0])
    save_picture(tmp_path / "test" / "cat" / "a.png", pixels(1, 8)[0])
    save_picture(tmp_path / "test" / "dog" / "a.png", pixels(1, 8)[0])
    with pytest.raises(Misconfigured, match=r"8×8 \(3\), 9×9 \(1\) pixels.*Set dataset.size"):
        image_folder(str(tmp_path))
    save_picture(tmp_path / "test" / "eel" / "a.png", pixels(1, 8)[0])
    with pytest.raises(Misconfigured, match=r"a class 'eel' that"):
        image_folder(str(tmp_path))
    save_picture(tmp_path / "train" / "cat" / "a.png", np.zeros((3, 4, 6), np.uint8))
    (tmp_path / "test" / "eel" / "a.png").unlink()
    (tmp_path / "test" / "eel").rmdir()
    with pytest.raises(Misconfigured, match=r"8×8 \(2\), 6×4 \(1\), 9×9 \(1\) pixels.*expected squares"):
        image_folder(str(tmp_path))
    with pytest.raises(Misconfigured, match=r"dataset.channels = 2"):
        image_folder(str(tmp_path), channels=2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Misconfigured, match=r"found nothing; expected train/CLASS"):
        image_folder(str(tmp_path / "empty"))


def test_a_truncated_jpeg_is_named(tmp_path):
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            save_jpeg(tmp_path / part / name / "a.jpg", 40, 40)
    broken = tmp_path / "test" / "dog" / "a.jpg"
    broken.write_bytes(broken.read_bytes()[:-40])
    with pytest.raises(Misconfigured, match=r"test/dog/a.jpg' cannot be decoded \(.*truncated.*Restore or remove it"):
        image_folder(str(tmp_path))


def test_a_users_tables_find_their_columns(tmp_path):
    images = pixels(4, 12)
    for part in ("train", "validation"):
        save_table(tmp_path / f"{part}-0.parquet", images, [2, 0, 1, 2], image="photo", label="kind")
    dataset = parquet(str(tmp_path))
    np.testing.assert_array_equal(dataset.train.inputs, images)
    assert (dataset.num_classes, dataset.class_names) == (3, ("0", "1", "2"))
    np.testing.assert_allclose(dataset.mean, images.mean(axis=(0, 2, 3)) / 255.0, rtol=1e-12)
    assert parquet(str(tmp_path), size=6).input_shape == (3, 6, 6)


def test_unclear_columns_are_asked_for(tmp_path):
    for part in ("train", "test"):
        save_table(tmp_path / f"{part}.parquet", pixels(3, 8), [0, 1, 1], label="first", second=[1, 0, 0])
    with pytest.raises(Misconfigured, match=r"candidates are first, second. Set dataset.label"):
        parquet(str(tmp_path))
    assert parquet(str(tmp_path), label="second").train.labels.tolist() == [1, 0, 0]
    with pytest.raises(Misconfigured, match=r"no label column 'secnd'. Did you mean 'second'"):
        parquet(str(tmp_path), label="secnd")


def test_a_users_tables_must_name_the_classes_alike(tmp_path):
    save_table(tmp_path / "train.parquet", pixels(2, 8), [0, 1], names=["C", "C++"])
    save_table(tmp_path / "test.parquet", pixels(2, 8), [0, 1], names=["C++", "C"])
    with pytest.raises(Misconfigured, match=r"test.parquet' names class 0 'C\+\+' .* expected 'C' as in '.*train"):
        parquet(str(tmp_path))
