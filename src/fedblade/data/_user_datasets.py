"""Torch datasets of a user: read item by item, and again in every epoch if reading draws random numbers."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Subset

from fedblade.core.errors import Misconfigured, RunFailed
from fedblade.data._hold_out import held_out_positions
from fedblade.data._source import Array
from fedblade.data._user_inputs import InputLayout

T = TypeVar("T")

_TRIED = 8
"""So many items are read twice, to find random transforms early and to refuse generators that cannot be seeded."""


@dataclass(frozen=True)
class Items:
    """All items of a torch dataset from one reading, whether reading draws random numbers, and the seconds per item."""

    source: Any
    inputs: Array
    labels: npt.NDArray[np.int64]
    is_random: bool
    seconds: float

    @property
    def kind(self) -> str:
        """The name of the dataset's class."""
        return type(self.source).__name__


@dataclass(frozen=True)
class RandomItems:
    """Reads items again. The draw of a sample seeds the generators of torch, NumPy and Python for its item.

    Afterwards the generators continue as if nothing had been read.
    """

    num_draws: ClassVar[int] = 1
    items: Items
    layout: InputLayout

    def __call__(self, indices: Tensor, draws: Tensor) -> Tensor:
        """Inputs at `indices`, each with its draw; an item with the same draw is read only once."""
        seeds = (draws[:, 0] * 2.0**53).to(torch.int64)
        keys = list(zip(indices.tolist(), seeds.tolist(), strict=True))
        with _preserved_generators():
            read = {key: self._read(*key) for key in dict.fromkeys(keys)}
        return torch.from_numpy(np.ascontiguousarray(self.layout.store(np.stack([read[key] for key in keys]))))

    def _read(self, index: int, seed: int) -> Array:
        _seed(seed)
        item, first = _as_input(self.items.source[index][0]), self.items.inputs
        if (item.shape, item.dtype) != (first.shape[1:], first.dtype):
            raise RunFailed(
                f"item {index} of {self.items.kind} has shape {item.shape} and type {item.dtype}; when it was first "
                f"read it had {first.shape[1:]} and {first.dtype}. Let its transforms end with one size."
            )
        return item


def is_torch_dataset(value: object) -> bool:
    """Whether a value has items and is neither an array nor a table nor a list."""
    has_items = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return has_items and not hasattr(value, "__array__") and not isinstance(value, list | tuple | str | bytes | Mapping)


def split_items(source: Any, key: tuple[int, int]) -> tuple["Subset[Any]", "Subset[Any]"]:
    """The items to train on and, in the mix of the labels, a fifth to test on; `key` draws them."""
    kept, held = held_out_positions(read_items(source).labels, key)
    return Subset(source, kept.tolist()), Subset(source, held.tolist())


def read_items(source: Any) -> Items:
    """Inputs and labels of a torch dataset. If reading draws random numbers, the index of an item seeds them."""
    with _preserved_generators():
        try:
            _, is_random = _run_and_detect_draws(lambda: [source[index] for index in range(min(_TRIED, len(source)))])
            begin = time.perf_counter()
            if not is_random:
                pairs, is_random = _run_and_detect_draws(lambda: _pairs(source, seeded=False))
            if is_random:
                begin = time.perf_counter()
                pairs = _pairs(source, seeded=True)
            inputs = np.stack([x for x, _ in pairs]) if pairs else np.zeros((0, 1))
        except (ValueError, TypeError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            raise Misconfigured(
                f"items of {type(source).__name__} are not (input, label) pairs of one shape: {reason}. "
                f"Give arrays (x, y) or (x, y, x_test, y_test), such as numpy.array(x), or torch datasets of pairs."
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
    """A label as a class number; `int` alone would turn 2.7 into 2."""
    label = int(given)
    if label != given:
        raise Misconfigured(
            f"item {index} has the label {given!r}; expected a whole number. Give class numbers 0, 1, 2, …"
        )
    return label


def _run_and_detect_draws(work: Callable[[], T]) -> tuple[T, bool]:
    """The result of `work`, and whether `work` drew from a global generator."""
    _seed(0)
    before = _generator_states()
    result = work()
    after = _generator_states()
    numpy_drew = not np.array_equal(before[1][1], after[1][1]) or before[1][2:] != after[1][2:]
    return result, before[0] != after[0] or numpy_drew or not torch.equal(before[2], after[2])


def _check_repeats(items: Items) -> None:
    """Refuse a dataset that gives different items although all generators have the same seed."""
    for index, first in enumerate(items.inputs[:_TRIED]):
        _seed(index)
        if not np.array_equal(_as_input(items.source[index][0]), first, equal_nan=first.dtype.kind == "f"):
            raise Misconfigured(
                f"item {index} of {items.kind} differs from one reading to the next although the generators of torch, "
                f"NumPy and Python had the same seed; expected equal items from equal seeds. Let its transforms draw "
                f"from the global generator of torch, numpy.random or random."
            )


def reading_notes(train: Items, test: Items) -> tuple[str, ...]:
    """Lines for the user about datasets that draw random numbers."""
    notes = []
    if train.is_random:
        notes.append(
            f"inputs: {train.kind} draws random numbers, so every epoch reads its items again, about "
            f"{1000 * train.seconds:.2g} ms for each sample; evaluation on training samples uses the first reading"
        )
    if test.is_random:
        notes.append(f"inputs: the test items of {test.kind} draw random numbers and are read once, for all rounds")
    return tuple(notes)


def _as_input(given: Any) -> Array:
    """An item's input as an array; pictures of Pillow become [height, width, channels]."""
    if getattr(given, "mode", None) == "P":
        raise Misconfigured(
            "items are Pillow pictures with a palette, whose pixels are numbers of colours; expected colours or greys. "
            'Convert the pictures in the dataset: picture.convert("RGB").'
        )
    return np.asarray(given)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed([seed >> 32, seed & 0xFFFFFFFF])
    torch.default_generator.manual_seed(seed)


def _generator_states() -> tuple[Any, Any, Tensor]:
    """The states of all global generators of a CPU."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


@contextmanager
def _preserved_generators() -> Iterator[None]:
    """Restore the states of the global generators when the body of the `with` statement ends."""
    python_state, numpy_state, torch_state = _generator_states()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
