"""The value that every data source gives: arrays in their stored type, and how to normalise them."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.samples import Augment, Reader, Samples
from fedblade.data._source import Array
from fedblade.data.table_encoding import TableEncoding

_PIECE = 4096


@dataclass(frozen=True)
class Part:
    """Inputs [n, …], labels [n] and, where the data come in groups (writers, domains), group numbers [n]."""

    inputs: Array
    labels: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A training and a test part. A batch is (inputs / unit − mean) / std, mean and std per channel or scalar.

    `fingerprint` is a digest of the contents that the source already knows, such as the key of a decoded copy.
    `group_names` names the groups of the parts (domains, writers). `margin` is a border of stored pixels that only
    augmentations may use: without an augmentation, the border is cut off. `source` says in a few words what the samples
    were read from, such as "PNG in 6 parquet files"; every run folder repeats it.

    The other fields belong to data that a user gave. `label_values` are the user's labels of the classes if they differ
    from the class numbers. `given_shape` is the shape of one input as given, if it is stored in another shape.
    `value_range` is the smallest and the largest input. `reader` reads training inputs again for every batch, for
    sources that draw random numbers. `notes` are lines for the user, shown before the first round. `encoding` is how
    the inputs were made from the columns of a table.
    """

    name: str
    train: Part
    test: Part
    num_classes: int
    unit: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    class_names: tuple[str, ...] | None = None
    fingerprint: str | None = None
    group_names: tuple[str, ...] | None = None
    margin: int = 0
    source: str = "given from Python"
    label_values: tuple[int, ...] | tuple[str, ...] | None = None
    given_shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] | None = None
    reader: Reader | None = None
    notes: tuple[str, ...] = ()
    encoding: TableEncoding | None = None

    def __post_init__(self) -> None:
        for kind, part in (("training", self.train), ("test", self.test)):
            _check_part(self.name, kind, part, self.num_classes)
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            raise Misconfigured(
                f"dataset '{self.name}' has training inputs of shape {self.train.inputs.shape[1:]} and test inputs of "
                f"shape {self.test.inputs.shape[1:]}; expected the same. Resize one of them."
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input as a model sees it, without the margin."""
        first, *sides = (int(size) for size in self.train.inputs.shape[1:])
        return (first, *(side - 2 * self.margin for side in sides))

    def digest(self) -> str:
        """SHA-256 of the contents; a run is resumed only with data of the same digest."""
        if self.fingerprint is not None:
            return self.fingerprint
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            for array in (part.inputs, part.labels, *(() if part.groups is None else (part.groups,))):
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        inputs = self.train.inputs
        if self.name == "arrays" and inputs.dtype == np.uint8 and inputs.ndim == 2 and self.unit == 1.0:
            # Earlier versions divided tables of bytes by 255. Another digest keeps those runs from being resumed.
            digest.update(b"used as they are")
        return digest.hexdigest()


def _check_part(name: str, kind: str, part: Part, num_classes: int) -> None:
    """Refuse a part that no model can be trained on."""
    if part.inputs.ndim < 2 or len(part.inputs) != len(part.labels):
        raise Misconfigured(
            f"dataset '{name}' has {kind} inputs of shape {part.inputs.shape} and {len(part.labels)} labels; "
            f"expected inputs [n, …] and n labels. One number for each sample is [n, 1]: x.reshape(-1, 1)."
        )
    if len(part) == 0:
        raise Misconfigured(f"dataset '{name}' has no {kind} samples; expected at least one per class. Add samples.")
    if num_classes < 2:
        raise Misconfigured(f"dataset '{name}' has one class only; expected at least 2. Add samples of another class.")
    low, high = int(part.labels.min()), int(part.labels.max())
    if low < 0 or high >= num_classes:
        raise Misconfigured(
            f"dataset '{name}' has {kind} labels from {low} to {high}; expected 0 to {num_classes - 1}. "
            f"Renumber the labels from 0."
        )
    if part.inputs.dtype.kind not in "biuf":
        raise Misconfigured(
            f"dataset '{name}' has {kind} inputs of type {part.inputs.dtype}; expected integers or real numbers. "
            f"Convert them."
        )
    if part.inputs.dtype.kind == "f" and not np.isfinite(part.inputs).all():
        raise Misconfigured(
            f"dataset '{name}' has NaN or infinite {kind} inputs; expected finite numbers. Correct them."
        )


def to_samples(
    dataset: Dataset, part: Part, device: torch.device, dtype: torch.dtype, augment: Augment | None
) -> Samples:
    """A part on the training device, with its normalisation as one subtraction and one product.

    If the data set has a reader, batches of the training part that come with draws are read by it.
    """
    channels = (-1,) + (1,) * (len(dataset.input_shape) - 1)
    mean, std = (torch.tensor(v, dtype=torch.float64).reshape(channels) for v in (dataset.mean, dataset.std))
    margin, reader = dataset.margin, dataset.reader if part is dataset.train else None
    if margin and augment is None:
        part = replace(part, inputs=part.inputs[..., margin:-margin, margin:-margin])
        margin = 0
    return Samples(
        inputs=_move(part.inputs, device),
        labels=_move(part.labels, device),
        dtype=dtype,
        shift=(mean * dataset.unit).to(device=device, dtype=dtype),
        scale=(1.0 / (std * dataset.unit)).to(device=device, dtype=dtype),
        augment=augment,
        margin=margin,
        reader=reader,
    )


def _move(array: Array, device: torch.device) -> torch.Tensor:
    """An array as a tensor on `device`. On the CPU it shares the array's memory if possible.

    To other devices the array goes piece by piece, because it may be larger than the memory.
    """
    if device.type == "cpu":
        usable = array.flags.writeable and all(step > 0 for step in array.strides)
        return torch.from_numpy(array if usable else np.array(array))
    pieces = range(0, len(array), _PIECE)
    first = torch.from_numpy(np.array(array[:1]))
    moved = torch.empty(array.shape, dtype=first.dtype, device=device)
    for start in pieces:
        moved[start : start + _PIECE] = torch.from_numpy(np.array(array[start : start + _PIECE])).to(device)
    return moved
