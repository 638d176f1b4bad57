"""Arrays on the training device."""

import numpy as np
import torch

from fedblade.data import Dataset, Part, to_samples
from fedblade.data import _dataset as module

CPU = torch.device("cpu")


def test_mapped_arrays_are_used_in_place(tmp_path):
    x = np.memmap(tmp_path / "x.bin", np.uint8, "w+", shape=(4, 1, 2, 2))
    x[:] = np.arange(16).reshape(4, 1, 2, 2)
    x.flush()
    part = Part(np.memmap(tmp_path / "x.bin", np.uint8, "c", shape=(4, 1, 2, 2)), np.arange(4) % 2)
    samples = to_samples(Dataset("d", part, part, 2), part, CPU, torch.float32, None)
    assert samples.inputs.data_ptr() == part.inputs.__array_interface__["data"][0]


def test_arrays_that_cannot_be_shared_are_copied():
    locked = np.arange(8, dtype=np.uint8).reshape(4, 2)
    locked.flags.writeable = False
    backwards = np.arange(8, dtype=np.uint8).reshape(4, 2)[::-1]
    for x in (locked, backwards):
        part = Part(x, np.arange(4) % 2)
        samples = to_samples(Dataset("d", part, part, 2), part, CPU, torch.float32, None)
        np.testing.assert_array_equal(samples.inputs.numpy(), x)


def test_other_devices_get_the_array_piece_by_piece(monkeypatch):
    """The meta device holds no data, so the pieces are caught on their way."""
    monkeypatch.setattr(module, "_PIECE", 3)
    moved = []

    class Target:
        def __setitem__(self, where, what):
            moved.append((where.start, what.numpy().copy()))

    monkeypatch.setattr(module.torch, "empty", lambda *_, **__: Target())
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: self)
    x = np.arange(16, dtype=np.uint8).reshape(8, 2)[:, ::-1]
    module._move(x, torch.device("meta"))
    assert [start for start, _ in moved] == [0, 3, 6]
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in moved]), x)
