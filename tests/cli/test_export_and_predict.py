"""`fedblade export` and `fedblade predict`: a run's folder in, a file or labels out, and one line for each mistake."""

import json

import numpy as np
import pytest
from PIL import Image

from fedblade.core.registry import datasets


@pytest.fixture
def mine(cli, small):
    """A run in the folder `mine`."""
    cli("run", *small, "--out", "mine", "--quiet").done()
    return cli


@pytest.fixture(scope="module")
def digits():
    return datasets.get("digits").make().test


def picture(pixels: np.ndarray) -> Image.Image:
    """A digit with 256 shades of grey, as a picture."""
    return Image.fromarray(np.round(pixels[0] * 255.0 / 16).astype("uint8"))


def test_export_writes_tensors_and_their_description(mine, tmp_path):
    answer = mine("export", "mine", "--format", "safetensors").done()
    assert answer.last == "mine.safetensors"
    assert json.loads((tmp_path / "mine.json").read_text())["file"] == "mine.safetensors"
    assert (
        mine("export", "mine", "--format", "safetensors", "--out", "models/a.safetensors")
        .done()
        .last.endswith("a.safetensors")
    )


def test_export_refuses_what_has_no_model(mine, small, tmp_path):
    assert "no format 'pt'" in mine("export", "mine", "--format", "pt").mistake()
    assert "holds no run" in mine("export", "nowhere").mistake()
    mine("run", *small, "--set", "method=fedper", "--out", "all/personal", "--quiet").done()
    assert "no global model" in mine("export", "all", "--format", "safetensors").mistake()
    assert "no global model" in mine("predict", "all", "x.npy").mistake()
    (tmp_path / "mine").rename(tmp_path / "all" / "second")
    assert "holds 2 runs; expected one" in mine("export", "all").mistake()


def test_predict_reads_pictures_arrays_and_folders_alike(mine, tmp_path, digits):
    (tmp_path / "folder").mkdir()
    for i in range(3):
        picture(digits.inputs[i]).save(tmp_path / "folder" / f"{i}.png")
    np.save(tmp_path / "three.npy", digits.inputs[:3])
    np.savez(tmp_path / "more.npz", x=digits.inputs[:3], y=digits.labels[:3])
    np.save(tmp_path / "one.npy", digits.inputs[0])
    rows = json.loads(mine("predict", "mine", "folder", "three.npy", "more.npz", "one.npy", "--json").done().out)
    assert [row["file"] for row in rows] == [
        "folder/0.png", "folder/1.png", "folder/2.png", "three.npy[0]", "three.npy[1]", "three.npy[2]",
        "more.npz[0]", "more.npz[1]", "more.npz[2]", "one.npy",
    ]  # fmt: skip
    chances = np.array([list(row["probabilities"].values()) for row in rows])
    assert chances[:3] == pytest.approx(chances[3:6], abs=1e-6)
    assert chances.sum(1) == pytest.approx(np.ones(10), abs=1e-5)
    assert [row["label"] for row in rows] == [str(label) for label in chances.argmax(1)]
    lines = mine("predict", "mine", "one.npy").done().out.splitlines()
    assert lines[0].split() == ["file", "label", "probability"]
    assert lines[1].split() == ["one.npy", rows[0]["label"], f"{100 * rows[0]['probability']:.1f}", "%"]


def test_predict_names_the_file_that_is_wrong_and_what_it_expected(mine, tmp_path, digits):
    Image.new("RGB", (8, 8)).save(tmp_path / "colour.png")
    Image.new("L", (9, 8)).save(tmp_path / "wide.png")
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "table.npy", np.zeros((2, 3)))
    np.save(tmp_path / "scaled.npy", digits.inputs[:20] / 16)
    np.save(tmp_path / "names.npy", np.array([[[["a"] * 8] * 8]]))
    np.savez(tmp_path / "two.npz", a=digits.inputs, b=digits.inputs)
    for name, words in {
        "colour.png": "expected one channel of grey",
        "wide.png": "9×8 pixels; expected 8×8",
        "text.png": "cannot be decoded",
        "text.npy": "cannot be read as an array",
        "gone.png": "does not exist",
        "empty": "holds no file that this model reads",
        "table.npy": "shape (2, 3); expected (n, 1, 8, 8)",
        "scaled.npy": "training had uint8 from 0 to 16",
        "names.npy": "expected numbers",
        "two.npz": "has the arrays a, b; expected one",
    }.items():
        message = mine("predict", "mine", name).mistake()
        assert words in message, message
        assert name in message, message


def test_predict_encodes_the_rows_of_a_table_as_training_did(cli, small, tmp_path):
    rows = [f"{i % 7},{'red' if i % 2 else 'blue'},{'yes' if i % 2 else 'no'}" for i in range(80)]
    (tmp_path / "train.csv").write_text("\n".join(["size,colour,label", *rows]))
    (tmp_path / "new.csv").write_text("size,colour\n3,red\n4,blue\n")
    settings = ["--set", "dataset=files", "--set", "dataset.path=train.csv"]
    cli("run", *small, *settings, "--set", "rounds=15", "--set", "lr=0.2", "--set", "partition=iid", "--out", "mine")
    found = json.loads(cli("predict", "mine", "new.csv", "--json").done().out)
    assert [(row["file"], row["label"]) for row in found] == [("new.csv[0]", "yes"), ("new.csv[1]", "no")]
    path = cli("export", "mine", "--format", "safetensors").done().last
    assert path == "mine.safetensors"
    encoding = json.loads((tmp_path / "mine.json").read_text())["preprocessing"]["table"]
    assert "colour" in json.dumps(encoding)
    assert "gone.csv" in cli("predict", "mine", "gone.csv").mistake()
