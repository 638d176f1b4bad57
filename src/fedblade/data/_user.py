"""What a user passes from Python as a `Dataset`: arrays, data frames, torch datasets, Hugging Face data sets."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural
from fedblade.data._dataset import Dataset
from fedblade.data._frames import read_frames
from fedblade.data._hold_out import held_out_note
from fedblade.data._hub_datasets import read_hub
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array
from fedblade.data._user_arrays import NAMES, arrays_dataset, as_array
from fedblade.data._user_datasets import is_torch_dataset, read_items, split_items
from fedblade.data._user_labels import Numbering, number_labels
from fedblade.data.own_files import dataset_of


def as_dataset(
    given: object, number: Callable[[Array, Array], Numbering] = number_labels, key: tuple[int, int] = (0, 0)
) -> Dataset:
    """A user's data as a `Dataset`.

    `given` is a `Dataset`, arrays (x, y) or (x, y, x_test, y_test), of which x may be data frames, a torch dataset
    or two (train, test), or a Hugging Face `Dataset` or `DatasetDict`. Without test samples a fifth is held out.

    Unsigned bytes of shape [n, height, width] or [n, channels, height, width] are pixels and are divided by 255. Other
    inputs, also tables of bytes, are used as they are. Pictures may have their channels last. Labels that are not
    0, 1, 2, … are numbered in ascending order, and names in sorted order. A torch dataset whose transforms draw
    random numbers is read again in every epoch. `Dataset.notes` says what was assumed. `number` turns the labels of
    both parts into class numbers. `key` is the seed and the number of the client that draw the fifth.
    """
    if isinstance(given, Dataset):
        return given
    read = read_hub(given) or read_frames(given) or _arrays(given)
    return _torch_datasets(given, number, key) if read is None else dataset_of(read, number, key)


def _arrays(given: object) -> OwnSamples | None:
    """The arrays (x, y) or (x, y, x_test, y_test); None for anything else. Two lists are two torch datasets."""
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    if len(items) != 4 and not (len(items) == 2 and hasattr(items[0], "__array__")):
        return None
    x, y, *test = (as_array(name, item) for name, item in zip(NAMES, items, strict=False))
    return OwnSamples(x, y, *(test or (None, None)))


def _torch_datasets(given: object, number: Callable[[Array, Array], Numbering], key: tuple[int, int]) -> Dataset:
    """One torch dataset, of which a fifth is held out, or two (train, test)."""
    if is_torch_dataset(given):
        dataset = _torch_datasets(split_items(given, key), number, key)
        note = held_out_note(len(dataset.test), len(dataset.train) + len(dataset.test))
        return replace(dataset, notes=(*dataset.notes, note))
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    if len(items) != 2 or not all(hasattr(item, "__len__") and hasattr(item, "__getitem__") for item in items):
        raise Misconfigured(
            f"dataset is of type {_form(given)}; expected a name, arrays (x, y) or (x, y, x_test, y_test), a torch "
            f"dataset or two (train, test), a Hugging Face Dataset or DatasetDict, or a fedblade.data.Dataset."
        )
    train, test = (read_items(dataset) for dataset in items)
    x, x_test = (as_array("inputs", part.inputs) for part in (train, test))
    return arrays_dataset((x, train.labels, x_test, test.labels), number, (train, test))


def _form(given: object) -> str:
    name = type(given).__name__
    return f"{name} with {plural(len(given), 'part')}" if isinstance(given, tuple | list) else name
