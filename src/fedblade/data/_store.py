"""Arrays written block by block, with a checksum per MiB, so that no large array is in memory."""

import os
import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedblade.data._source import Array, Block, PartName


class ArrayFile:
    """A growing array on disk: rows are appended; the final shape and checksums are known at the end."""

    BLOCK: ClassVar[int] = 1 << 20

    def __init__(self, path: Path) -> None:
        self._stream = path.open("wb")
        self._row: tuple[int, ...] | None = None
        self._dtype = ""
        self._rows = self._bytes = self._crc = 0
        self._crcs: list[int] = []

    def append(self, rows: Array) -> None:
        """Add rows [n, …]; all must have the shape and type of the first."""
        row, dtype = tuple(rows.shape[1:]), rows.dtype.str
        if self._row is None:
            self._row, self._dtype = row, dtype
        if (row, dtype) != (self._row, self._dtype):
            raise ValueError(f"rows of shape {row} and type {dtype} after {self._row} and {self._dtype}")
        data = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        self._stream.write(data)
        self._rows += len(rows)
        while len(data):
            room = self.BLOCK - self._bytes % self.BLOCK
            self._crc = zlib.crc32(data[:room], self._crc)
            self._bytes += min(room, len(data))
            data = data[room:]
            if self._bytes % self.BLOCK == 0:
                self._crcs.append(self._crc)
                self._crc = 0

    def close(self) -> None:
        """Write everything to the disk and close the file."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()

    def facts(self) -> dict[str, Any]:
        """Shape, type, size and checksums, as `meta.json` stores them."""
        tail = [self._crc] if self._bytes % self.BLOCK else []
        shape = [self._rows, *(self._row or ())]
        return {"dtype": self._dtype, "shape": shape, "bytes": self._bytes, "crc32": self._crcs + tail}


class PartWriter:
    """Writes inputs, labels and group numbers of one part. With `measure`, it counts pixel values per channel.

    `groups` maps group names to numbers in order of appearance; both parts share it.
    """

    def __init__(self, folder: Path, part: PartName, groups: dict[str, int], *, measure: bool) -> None:
        self._folder, self._part, self._groups = folder, part, groups
        self._files: dict[str, ArrayFile] = {}
        self._measure = measure
        self._histogram: Array | None = None
        self._count = 0

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def __len__(self) -> int:
        return self._count

    def add(self, block: Block) -> None:
        """Append a block to the files of the part."""
        self._append("inputs", block.inputs)
        self._append("labels", block.labels.astype(np.int64))
        if block.groups is not None:
            numbers = [self._groups.setdefault(name, len(self._groups)) for name in block.groups]
            self._append("groups", np.asarray(numbers, dtype=np.int64))
        self._count += len(block.labels)
        if self._measure:
            channels = np.moveaxis(block.inputs, 1, 0).reshape(block.inputs.shape[1], -1)
            counts = np.stack([np.bincount(channel, minlength=256) for channel in channels])
            self._histogram = counts if self._histogram is None else self._histogram + counts

    def _append(self, kind: str, rows: Array) -> None:
        name = f"{self._part}-{kind}"
        if name not in self._files:
            self._files[name] = ArrayFile(self._folder / f"{name}.bin")
        self._files[name].append(rows)

    def facts(self) -> dict[str, Any]:
        """What `meta.json` says about the part's arrays."""
        return {name: file.facts() for name, file in self._files.items()}

    def statistics(self) -> dict[str, Any]:
        """Mean and standard deviation of each channel in [0, 1], if pixel values were counted."""
        if self._histogram is None:
            return {}
        share = self._histogram / self._histogram.sum(axis=1, keepdims=True)
        values = np.arange(256) / 255.0
        mean = share @ values
        deviation = np.sqrt(np.maximum(share @ values**2 - mean**2, 0.0))
        return {"mean": mean.tolist(), "std": np.where(deviation > 0, deviation, 1.0).tolist()}
