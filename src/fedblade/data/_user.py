"""What a user passes from Python as a `Dataset`: arrays, data frames, torch datasets, Hugging Face data sets."""

from collections.abc import Callable, Sequence
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.data._dataset import Array, Dataset
from fedblade.data._frames import read_frames
from fedblade.data._hub_datasets import read_hub
from fedblade.data._user_arrays import NAMES, arrays_dataset, as_array
from fedblade.data._user_datasets import Items, read_items
from fedblade.data._user_labels import Numbering, number_labels
from fedblade.data.own_files import dataset_of


def as_dataset(given: object, number: Callable[[Array, Array], Numbering] = number_labels) -> Dataset:
    """A user's data as a `Dataset`.

    `given` is a `Dataset`, four arrays (x, y, x_test, y_test), of which x may be data frames, two torch datasets
    (train, test), or a Hugging Face `Dataset` or `DatasetDict`.

    Unsigned bytes of shape [n, height, width] or [n, channels, height, width] are pixels and are divided by 255. Other
    inputs, also tables of bytes, are used as they are. Pictures may have their channels last. Labels that are not
    0, 1, 2, … are numbered in ascending order, and names in sorted order. A torch dataset whose transforms draw
    random numbers is read again in every epoch. `Dataset.notes` says what was assumed. `number` turns the labels of
    both parts into class numbers.
    """
    if isinstance(given, Dataset):
        return given
    read = read_hub(given) or read_frames(given)
    if read is not None:
        return dataset_of(read, number)
    arrays, items = _four_arrays(given)
    return arrays_dataset(arrays, number, items)


def _four_arrays(given: object) -> tuple[tuple[Array, Array, Array, Array], tuple[Items, Items] | None]:
    """The four arrays in the byte order of the machine, and the items of the torch datasets they were read from."""
    items: Sequence[Any] = given if isinstance(given, tuple | list) else ()
    if len(items) == 2 and all(hasattr(item, "__len__") and hasattr(item, "__getitem__") for item in items):
        train, test = (read_items(dataset) for dataset in items)
        x, x_test = (as_array("inputs", part.inputs) for part in (train, test))
        return (x, train.labels, x_test, test.labels), (train, test)
    if len(items) == 4:
        x, y, x_test, y_test = (as_array(name, item) for name, item in zip(NAMES, items, strict=True))
        return (x, y, x_test, y_test), None
    raise Misconfigured(
        f"dataset is a {type(given).__name__}; expected a name, a fedblade.data.Dataset, four arrays "
        f"(x, y, x_test, y_test), two torch datasets (train, test) or a Hugging Face Dataset or DatasetDict."
    )
