"""What a person gives for one client: arrays, torch datasets, or a `Dataset`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural
from fedblade.data._dataset import Dataset
from fedblade.data._frames import read_frames
from fedblade.data._hub_datasets import read_hub
from fedblade.data._own_samples import OwnSamples
from fedblade.data._user_arrays import NAMES, as_array
from fedblade.data._user_datasets import is_torch_dataset

_EXPECTED = (
    "(x, y), (x, y, x_test, y_test), a torch dataset, two torch datasets (train, test), a Hugging Face Dataset or "
    "DatasetDict, or a fedblade.data.Dataset"
)
_LONGEST_NAME = 80


@dataclass(frozen=True, eq=False)
class TorchSamples:
    """The torch datasets of a client; `test` is None if the client gives no test samples."""

    train: Any
    test: Any = None


ClientValue = OwnSamples | TorchSamples | Dataset


def client_values(given: object) -> dict[str, ClientValue]:
    """The data of all clients by name, checked one by one: each has samples, and a label for each of them."""
    if not isinstance(given, Mapping):
        raise Misconfigured(
            f"clients has type {type(given).__name__}; expected a dict from the name of each client to its data: "
            f"clients={{'north': (x, y), 'south': (x, y)}}."
        )
    for name in given:
        _check_name(name)
    if len(given) < 2:
        raise Misconfigured(
            f"clients has {len(given)} clients ({', '.join(map(repr, given)) or 'an empty dict'}); expected at least "
            f"two. Give one data set as dataset=(x, y, x_test, y_test), to be divided among clients."
        )
    values: dict[str, ClientValue] = {}
    for name, value in given.items():
        with naming(name):
            values[name] = _client_value(value)
    return values


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Let an error of the user's data begin with the client whose data they are; data of no client have the name ""."""
    try:
        yield
    except Misconfigured as error:
        if not name:
            raise
        raise type(error)(f"client '{name}': {error}") from error


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise Misconfigured(
            f"clients has {name!r} (type {type(name).__name__}) as the name of a client; expected a string, such as "
            f"'{name}'."
        )
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise Misconfigured(
            f"clients has {name[: _LONGEST_NAME + 1]!r} as the name of a client; expected 1 to {_LONGEST_NAME} "
            f"printable characters."
        )


def _client_value(value: object) -> ClientValue:
    """The data of one client in one of three forms; data frames and a Hugging Face data set are read."""
    if isinstance(value, Dataset):
        return value
    read = value if isinstance(value, OwnSamples) else read_hub(value) or read_frames(value)
    if read is not None:
        return _checked(read)
    if is_torch_dataset(value):
        return _checked_items(TorchSamples(value))
    parts: Sequence[Any] = value if isinstance(value, tuple | list) else ()
    if len(parts) == 2 and all(map(is_torch_dataset, parts)):
        return _checked_items(TorchSamples(*parts))
    if len(parts) not in (2, 4) or any(map(is_torch_dataset, parts)):
        form = f"{len(parts)} values" if parts else f"type {type(value).__name__}"
        files = " Files of clients are read by dataset='clients' with dataset.path." if isinstance(value, str) else ""
        raise Misconfigured(f"its data have {form}; expected {_EXPECTED}.{files}")
    x, y, *test = (as_array(name, part) for name, part in zip(NAMES, parts, strict=False))
    return _checked(OwnSamples(x, y, *(test or (None, None))))


def _checked(samples: OwnSamples) -> OwnSamples:
    """The samples of a client, with as many labels as inputs; an empty test part counts as none."""
    if samples.x_test is not None and len(samples.x_test) == 0:
        samples = replace(samples, x_test=None, y_test=None)
    samples.check_lengths()
    if len(samples.x) == 0:
        raise Misconfigured("it has no samples; expected at least one. Leave the client out, or add samples.")
    _refuse_non_finite("training", samples.x)
    _refuse_non_finite("test", samples.x_test)
    return samples


def _refuse_non_finite(kind: str, x: Any) -> None:
    if getattr(x, "dtype", np.dtype(int)).kind != "f" or np.isfinite(x).all():
        return
    sample, *others = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))
    more = f" and {plural(len(others), 'other')}" if others else ""
    raise Misconfigured(
        f"NaN or infinite inputs in {kind} sample {sample}{more}; expected finite numbers. Complete the samples, or "
        f"leave them out."
    )


def _checked_items(samples: TorchSamples) -> TorchSamples:
    if len(samples.train) == 0:
        raise Misconfigured("it has no samples; expected at least one. Leave the client out, or add samples.")
    return TorchSamples(samples.train) if samples.test is None or len(samples.test) == 0 else samples
