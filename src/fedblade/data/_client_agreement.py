"""Whether the data of all clients have one form; an error names the first client and the first one that differs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.words import listing
from fedblade.data._dataset import Dataset
from fedblade.data._own_samples import OwnSamples
from fedblade.data._source import Array

_SHOWN = 200
"""Characters of a fact that an error shows."""
_KINDS = {"i": "whole numbers", "u": "whole numbers", "f": "floating-point numbers", "b": "truth values"}
"""Kinds of labels by the kind of the array; all others are names."""
_FRACTIONS, _BYTES = 1.0, 16.0
"""Pictures up to the first number and pictures from the second on have another scale."""


def check_arrays(clients: Mapping[str, OwnSamples]) -> None:
    """Refuse clients whose inputs differ in shape, type or scale, or whose labels differ in kind."""
    forms, labels, scales = {}, {}, {}
    for name, samples in clients.items():
        x, y = _array(samples.x), samples.y
        forms[name] = _form(x.shape[1:], x.dtype)
        labels[name] = _kind_of_labels(samples)
        scales[name] = _scale(x)
        for kind, own, other in (("inputs", x, samples.x_test), ("labels", y, samples.y_test)):
            _check_test_part(name, kind, own, other)
    _refuse_difference("inputs of", forms, "one shape and one type. Convert one of them")
    _refuse_difference("labels that are", labels, "one kind. Convert one of them")
    known = {name: scale for name, scale in scales.items() if scale is not None}
    _refuse_difference("pictures with values", known, "one scale. Divide the pictures of all clients, or of none")


def check_items(clients: Mapping[str, Any]) -> None:
    """Refuse torch datasets whose first items differ in shape or type."""
    inputs = {name: np.asarray(source[0][0]) for name, source in clients.items()}
    forms = {name: _form(x.shape, x.dtype) for name, x in inputs.items()}
    _refuse_difference("inputs of", forms, "one shape and one type. Convert one of them")
    known = {name: scale for name, x in inputs.items() if (scale := _scale(x[None])) is not None}
    _refuse_difference("pictures with values", known, "one scale. Divide the pictures of all clients, or of none")


def check_datasets(clients: Mapping[str, Dataset]) -> None:
    """Refuse data sets that differ in anything but their samples, or that are read again in every epoch."""
    for name, dataset in clients.items():
        if dataset.reader is not None:
            raise Misconfigured(
                f"client '{name}': its data set is read again in every epoch. Give its torch datasets (train, test)."
            )
    inputs = {name: dataset.train.inputs for name, dataset in clients.items()}
    forms = {name: _form(x.shape[1:], x.dtype) for name, x in inputs.items()}
    _refuse_difference("inputs of", forms, "one shape and one type. Convert one of them")
    for fact in ("num_classes", "class_names", "label_values", "unit", "mean", "std", "margin"):
        texts = {name: f"{fact} = {getattr(dataset, fact)}" for name, dataset in clients.items()}
        _refuse_difference("a Dataset with", texts, "the same. Make the data sets of all clients alike")


def _kind_of_labels(samples: OwnSamples) -> str:
    if samples.class_names is not None:
        return f"numbers of the classes {listing(samples.class_names)}"
    return _KINDS.get(samples.y.dtype.kind, "names")


def _array(given: Any) -> Array:
    array: Array = given
    return array


def _form(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> str:
    return f"shape [{', '.join(('n', *map(str, shape)))}] and type {dtype}"


def _scale(x: Array) -> str | None:
    """The scale of pictures [n, …] of a type that is used as it is; None if nobody can tell."""
    if x.ndim < 3 or x.dtype == np.uint8 or x.size == 0:
        return None
    low, high = float(x.min()), float(x.max())
    largest = max(-low, high)
    if 0 < largest <= _FRACTIONS:
        return f"up to {_FRACTIONS:g}"
    return f"above {_BYTES:g}" if largest >= _BYTES else None


def _check_test_part(name: str, kind: str, own: Array, test: Any) -> None:
    if len(test) and (own.shape[1:], own.dtype.kind) != (test.shape[1:], test.dtype.kind):
        raise Misconfigured(
            f"client '{name}' has training {kind} of {_form(own.shape[1:], own.dtype)} and test {kind} of "
            f"{_form(test.shape[1:], test.dtype)}; expected the same. Convert one of them."
        )


def _refuse_difference(what: str, texts: Mapping[str, str], expected: str) -> None:
    """Refuse clients whose texts differ; the message has the first client and the first one that differs."""
    first = next(iter(texts), "")
    other = next((name for name in texts if texts[name] != texts[first]), None)
    if other is not None:
        raise Misconfigured(
            f"client '{first}' has {what} {texts[first][:_SHOWN]}, and client '{other}' {texts[other][:_SHOWN]}; "
            f"expected {expected}."
        )
