"""Every data set, run folder and report names the pictures it was made from."""

import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import fedblade
from fedblade.data.cifar import cifar10
from fedblade.data.image_folder import image_folder
from fedblade.report import build_report
from support.made_files import as_png, pixels, save_cifar10_binary, save_jpeg, save_picture, save_table


def jpeg(image):
    stream = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(stream, "JPEG")
    return stream.getvalue()


def save_tables(folder, encode, shards=1):
    """CIFAR-10 tables with 20 training and 10 test pictures, encoded by `encode`."""
    folder.mkdir(parents=True)
    for name, count, seed in (*((f"train-{i:05d}-of-{shards:05d}", 20, i) for i in range(shards)), ("test", 10, 9)):
        cells = [{"bytes": encode(image), "path": "x.bin"} for image in pixels(count, 32, seed=seed)]
        table = pa.table({"img": cells, "label": pa.array(np.arange(count) % 10, pa.int64())})
        pq.write_table(table, folder / f"{name}.parquet")


def test_the_format_is_read_from_the_bytes(tmp_path):
    save_tables(tmp_path / "png", as_png, shards=5)
    save_tables(tmp_path / "jpeg", jpeg)
    save_cifar10_binary(tmp_path / "raw")
    assert cifar10(str(tmp_path / "png")).source == "PNG in 6 parquet files"
    assert cifar10(str(tmp_path / "jpeg")).source == "JPEG (lossy) in 2 parquet files"
    assert cifar10(str(tmp_path / "raw")).source == "original pixels in 6 binary files"
    for i, name in enumerate(("a", "b")):
        save_picture(tmp_path / "mine" / "train" / name / "one.jpg", pixels(1, 8)[0])
        save_jpeg(tmp_path / "mine" / "test" / name / "two.png", 8, 8, seed=i)
    assert image_folder(str(tmp_path / "mine")).source == "JPEG (lossy) and PNG in 4 picture files"


def test_a_decoded_copy_keeps_the_description_and_an_older_one_gets_it_from_the_files(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("FEDBLADE_DATA", str(tmp_path))
    save_table(tmp_path / "cifar10" / "train.parquet", pixels(10, 32), np.arange(10))
    save_table(tmp_path / "cifar10" / "test.parquet", pixels(10, 32, seed=1), np.arange(10))
    assert cifar10().source == "PNG in 2 parquet files"
    (meta,) = cache.glob("decoded/cifar10-*/meta.json")
    facts = json.loads(meta.read_text())
    del facts["pictures"]
    meta.write_text(json.dumps(facts))
    assert cifar10().source == "PNG in 2 parquet files"
    assert json.loads(meta.read_text())["pictures"] == "PNG in 2 parquet files"
    shutil.rmtree(tmp_path / "cifar10")
    assert cifar10().source == "PNG in 2 parquet files"
    meta.write_text(json.dumps(facts))
    assert cifar10().source == "unknown"


def test_run_folders_and_the_report_name_the_pictures(tmp_path):
    small = {
        "model": "mlp",
        "method": "fedavg",
        "rounds": 1,
        "num_clients": 2,
        "clients_per_round": 2,
        "partition": "iid",
    }
    for name, encode in (("png", as_png), ("jpeg", jpeg)):
        save_tables(tmp_path / name, encode)
        data = {"dataset": "cifar10", "dataset.path": str(tmp_path / name)}
        fedblade.run("quickstart", out=tmp_path / "runs" / name, **small, **data)
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    y = np.arange(20) % 2
    fedblade.run("quickstart", out=tmp_path / "own", dataset=(x, y, x, y), **small)
    summaries = {name: json.loads((tmp_path / name / "summary.json").read_text()) for name in ("runs/png", "own")}
    stored = json.loads((tmp_path / "runs" / "png" / "partition.json").read_text())
    assert summaries["runs/png"]["pictures"] == {"source": "PNG in 2 parquet files", "digest": stored["data"]}
    assert summaries["own"]["pictures"]["source"] == "given from Python"
    page = build_report([tmp_path / "runs"], tmp_path / "both.html").read_text()
    assert "<dt>pictures</dt><dd>JPEG (lossy) in 2 parquet files, PNG in 2 parquet files</dd>" in page
    assert "trained on different pictures" in page
    alone = build_report([tmp_path / "runs" / "png"], tmp_path / "one.html").read_text()
    assert "trained on different pictures" not in alone
