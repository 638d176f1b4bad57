"""Torch datasets of a user's: read item by item, and again in every epoch where reading draws random numbers."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.data._dataset import Array
from fedblade.data._user_pictures import Look

T = TypeVar("T")

_TRIED = 8
"""Items that are read twice, to find random transforms early, and datasets with generators of their own."""


@dataclass(frozen=True)
class Items:
    """All items of a torch dataset as they were read once, whether that drew random numbers, and how long one took."""

    source: Any
    inputs: Array
    labels: npt.NDArray[np.int64]
    is_random: bool
    seconds: float

    @property
    def kind(self) -> str:
        """What the user calls the dataset."""
        return type(self.source).__name__


@dataclass(frozen=True)
class RandomItems:
    """Reads items anew. Torch's, NumPy's and Python's generators are seeded by the draw of a sample, then put back."""

    num_draws: ClassVar[int] = 1
    items: Items
    look: Look

    def __call__(self, indices: Tensor, draws: Tensor) -> Tensor:
        """Inputs at `indices`, each by its own draw; what is asked for twice is read once."""
        seeds = (draws[:, 0] * 2.0**53).to(torch.int64)
        asked = list(zip(indices.tolist(), seeds.tolist(), strict=True))
        with _kept_generators():
            read = {key: self._read(*key) for key in dict.fromkeys(asked)}
        return torch.from_numpy(np.ascontiguousarray(self.look.store(np.stack([read[key] for key in asked]))))

    def _read(self, index: int, seed: int) -> Array:
        _seed(seed)
        found, first = _as_input(self.items.source[index][0]), self.items.inputs
        if (found.shape, found.dtype) != (first.shape[1:], first.dtype):
            raise RunFailed(
                f"item {index} of {self.items.kind} has shape {found.shape} and type {found.dtype}; when it was first "
                f"read it had {first.shape[1:]} and {first.dtype}. Let its transforms end with one size."
            )
        return found


def read_items(source: Any) -> Items:
    """Inputs and labels of a torch dataset; where reading draws random numbers, the index of an item seeds them."""
    with _kept_generators():
        try:
            _, is_random = _drawing(lambda: [source[index] for index in range(min(_TRIED, len(source)))])
            begin = time.perf_counter()
            if not is_random:
                pairs, is_random = _drawing(lambda: _pairs(source, seeded=False))
            if is_random:
                begin = time.perf_counter()
                pairs = _pairs(source, seeded=True)
            inputs = np.stack([x for x, _ in pairs]) if pairs else np.zeros((0, 1))
        except (ValueError, TypeError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            raise Misconfigured(
                f"items of {type(source).__name__} are not (input, label) pairs of one shape: {reason}. "
                f"Give two torch datasets or four arrays (x, y, x_test, y_test)."
            ) from error
        seconds = (time.perf_counter() - begin) / max(1, len(pairs))
        labels = np.asarray([y for _, y in pairs], dtype=np.int64)
        items = Items(source, inputs, labels, is_random, seconds)
        _check_repeats(items)
    return items


def _pairs(source: Any, *, seeded: bool) -> list[tuple[Array, int]]:
    pairs = []
    for index in range(len(source)):
        if seeded:
            _seed(index)
        x, y = source[index]
        pairs.append((_as_input(x), _as_label(index, y)))
    return pairs


def _as_label(index: int, given: Any) -> int:
    """A label as a class number; `int` alone would make 2 of 2.7."""
    label = int(given)
    if label != given:
        raise Misconfigured(
            f"item {index} has the label {given!r}; expected a whole number. Give class numbers 0, 1, 2, …"
        )
    return label


def _drawing(work: Callable[[], T]) -> tuple[T, bool]:
    """What some work gives, and whether it drew from a global generator."""
    _seed(0)
    before = _generators()
    found = work()
    after = _generators()
    in_numpy = not np.array_equal(before[1][1], after[1][1]) or before[1][2:] != after[1][2:]
    return found, before[0] != after[0] or in_numpy or not torch.equal(before[2], after[2])


def _check_repeats(items: Items) -> None:
    """Refuse datasets that give something else although all generators are seeded alike."""
    for index, first in enumerate(items.inputs[:_TRIED]):
        _seed(index)
        if not np.array_equal(_as_input(items.source[index][0]), first, equal_nan=first.dtype.kind == "f"):
            raise Misconfigured(
                f"item {index} of {items.kind} differs from one reading to the next although the generators of torch, "
                f"NumPy and Python were seeded alike; expected equal items from equal seeds. Let its transforms draw "
                f"from torch's, numpy.random's or random's global generator."
            )


def reading_notes(train: Items, test: Items) -> tuple[str, ...]:
    """What a user should know of datasets that draw random numbers."""
    notes = []
    if train.is_random:
        notes.append(
            f"inputs: {train.kind} draws random numbers, so every epoch reads its items anew, about "
            f"{1000 * train.seconds:.2g} ms for each sample; evaluation of training samples has them as first read"
        )
    if test.is_random:
        notes.append(f"inputs: the test items of {test.kind} draw random numbers and are read once, for all rounds")
    return tuple(notes)


def _as_input(given: Any) -> Array:
    """An item's input as an array; pictures of Pillow become [height, width, channels]."""
    if getattr(given, "mode", None) == "P":
        raise Misconfigured(
            "items are Pillow pictures with a palette, whose pixels are numbers of colours; expected colours or greys. "
            'Convert them in the dataset: picture.convert("RGB").'
        )
    return np.asarray(given)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed([seed >> 32, seed & 0xFFFFFFFF])
    torch.default_generator.manual_seed(seed)


def _generators() -> tuple[Any, Any, Tensor]:
    """The states of all global generators of a CPU."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


@contextmanager
def _kept_generators() -> Iterator[None]:
    """Put the global generators back as they were."""
    of_python, of_numpy, of_torch = _generators()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
