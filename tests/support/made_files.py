"""Small files in the real formats of the data sets, and what a loader must read from them."""

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def pixels(count: int, size: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, size, size), dtype=np.uint8)


def as_png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    plain = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    Image.fromarray(plain).save(stream, "PNG")
    return stream.getvalue()


def save_picture(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_png(image))


def save_jpeg(path: Path, width: int, height: int, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((width, height)).save(path, "JPEG")


def save_table(
    path: Path, images: np.ndarray, labels, image: str = "img", label: str = "label", names=None, **extra
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = [{"bytes": as_png(each), "path": f"{path.stem}-{i}.png"} for i, each in enumerate(images)]
    table = pa.table({image: cells, label: pa.array(labels, pa.int64()), **extra})
    if names is not None:
        features = {"info": {"features": {label: {"names": list(names), "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(table, path, row_group_size=3)


def cifar10_records(count: int, seed: int = 0) -> tuple[bytes, np.ndarray, np.ndarray]:
    images = pixels(count, 32, seed=seed)
    labels = (np.arange(count) + seed) % 10
    return b"".join(bytes([y]) + x.tobytes() for x, y in zip(images, labels, strict=True)), images, labels


def save_cifar10_binary(folder: Path, count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Five training batches and a test batch; gives the training images and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = [], []
    for batch in range(1, 6):
        data, x, y = cifar10_records(count, seed=batch)
        (folder / f"data_batch_{batch}.bin").write_bytes(data)
        images.append(x)
        labels.append(y)
    (folder / "test_batch.bin").write_bytes(cifar10_records(count, seed=6)[0])
    return np.concatenate(images), np.concatenate(labels)


def save_cifar100_binary(folder: Path, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed in (("test", 1), ("train", 0)):
        images = pixels(count, 32, seed=seed)
        fine = (np.arange(count) * 17 + seed) % 100
        records = (bytes([int(y) % 20, int(y)]) + x.tobytes() for x, y in zip(images, fine, strict=True))
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    return images, fine


def pack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder, folder.name)


def save_idx(path: Path, array: np.ndarray, *, compress: bool = True) -> None:
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if compress else data)


def save_fashion(folder: Path, *, compress: bool = True) -> dict[str, np.ndarray]:
    ending = ".gz" if compress else ""
    made = {}
    for stem, count, seed in (("train", 12, 0), ("t10k", 10, 1)):
        made[f"{stem}-x"], made[f"{stem}-y"] = pixels(count, 28, 1, seed)[:, 0], (np.arange(count) + seed) % 10
        save_idx(folder / f"{stem}-images-idx3-ubyte{ending}", made[f"{stem}-x"], compress=compress)
        save_idx(folder / f"{stem}-labels-idx1-ubyte{ending}", made[f"{stem}-y"], compress=compress)
    return made


TINY_IDS = tuple(sorted(f"n{(i * 7919) % 100_000_000:08d}" for i in range(200)))


def save_tiny_folder(root: Path) -> None:
    """One training picture per class and four validation pictures, in the archive's layout."""
    base = root / "tiny-imagenet-200"
    base.mkdir(parents=True)
    (base / "wnids.txt").write_text("\n".join(reversed(TINY_IDS)) + "\n")
    for label, name in enumerate(TINY_IDS):
        save_picture(base / "train" / name / "images" / f"{name}_0.JPEG", np.full((3, 64, 64), label, np.uint8))
    lines = []
    for i, label in enumerate((199, 0, 7, 100)):
        save_picture(base / "val" / "images" / f"val_{i}.JPEG", np.full((3, 64, 64), label, np.uint8))
        lines.append(f"val_{i}.JPEG\t{TINY_IDS[label]}\t0\t0\t63\t63")
    (base / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def save_leaf(root: Path, part: str, file: str, users: dict[str, tuple[list, list]]) -> None:
    folder = root / "data" / part
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    (folder / file).write_text(json.dumps(content))
