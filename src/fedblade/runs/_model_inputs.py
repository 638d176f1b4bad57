"""Inputs of a trained model: converted as those of training were, or refused if they are scaled differently."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset
from fedblade.data.table_encoding import TableEncoding
from fedblade.data.table_rows import encode_rows

_SCALED_FROM = 16.0
"""If training had values as large as this, they were not scaled to [0, 1]."""
_MANY = 16
"""So many pictures are not all dark or all bright by chance."""
_SMALL = 0.1
"""Many pictures together exceed this share of training's largest magnitude."""
_BELOW, _BEYOND = 0.1, 0.25
"""How far values may lie outside training's range, as a share of it: below 0 if training had no negative values, and
otherwise."""
_FEW = 0.01
"""Share of values that may lie farther outside, because new pictures have outliers."""
_AS_IT_IS = "To have inputs used as they are, call the model itself."


def model_facts(dataset: Dataset) -> dict[str, Any]:
    """What a saved model stores about its data."""
    return {
        "input_shape": list(dataset.input_shape),
        "num_classes": dataset.num_classes,
        "unit": dataset.unit,
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "class_names": None if dataset.class_names is None else list(dataset.class_names),
        "dtype": dataset.train.inputs.dtype.name,
        "given_shape": None if dataset.given_shape is None else list(dataset.given_shape),
        "value_range": None if dataset.value_range is None else list(dataset.value_range),
        "encoding": None if dataset.encoding is None else dataset.encoding.to_json(),
        "label_values": None if dataset.label_values is None else list(dataset.label_values),
    }


def as_trained(facts: dict[str, Any], inputs: Any) -> Tensor:
    """Inputs in the shape that training used. The shape of the user's training data is accepted too, and converted.

    Rows of a table are encoded as those of training. Inputs that are scaled differently from those of training are
    refused. Files of older versions lack some facts; what depends on those is not checked.
    """
    if facts.get("encoding") is not None:
        return torch.from_numpy(encode_rows(TableEncoding.from_json(facts["encoding"]), inputs))
    batch = inputs if isinstance(inputs, Tensor) else _as_tensor(inputs)
    stored, original = tuple(facts["input_shape"]), tuple(facts.get("given_shape") or ())
    shape = tuple(batch.shape[1:])
    if shape not in (stored, original) or batch.dim() == 0:
        alternative = f" or {_batch_of(original)}" if original else ""
        raise Misconfigured(
            f"inputs have shape {tuple(batch.shape)}; expected {_batch_of(stored)}{alternative}, as in training. "
            f"Reshape them."
        )
    if batch.numel():
        _check_scale(facts, batch)
    if shape == stored:
        return batch
    return batch.unsqueeze(1) if len(original) < len(stored) else batch.movedim(-1, 1)


def _as_tensor(inputs: Any) -> Tensor:
    """Numbers from Python or numpy as a tensor."""
    try:
        return torch.from_numpy(np.ascontiguousarray(inputs))
    except (TypeError, ValueError) as error:
        raise Misconfigured(
            f"inputs of type {type(inputs).__name__} are no array of numbers; expected a numpy array or a tensor. "
            f"`fedblade predict` reads files."
        ) from error


def _check_scale(facts: dict[str, Any], batch: Tensor) -> None:
    """Refuse inputs whose values, over the whole batch, are scaled differently from those of training.

    The range is training's highest value minus its lowest. Refused are:

    - pictures of which 1 % of the values lie above training's highest by more than a quarter of the range, or below its
      lowest by more than a quarter (a tenth if training had no negative values), or a single value by more than the
      range; for a model of pixels, a single value outside of 0 to 255 (or whatever the unit is);
    - fractions in 0 to 1 if training reached 16 or more, except tables of fractions;
    - pictures around 0 (lowest < -highest / 4) that do not exceed a quarter of training's highest value, if training
      reached 16 or more and had no negative values;
    - pictures with fractions that do not exceed a tenth of training's highest value, if training had integers;
    - 16 or more pictures of a type with fractions, none of which exceeds a tenth of training's largest magnitude, or
      none of which has a negative value although training's went below 0 by more than a tenth of the range.

    A single dark picture passes, and so do black pictures. Values of tables may lie outside: every column has its own
    scale.
    """
    expected = _training_range(facts)
    if expected is None:
        return
    least, most = expected
    values = batch.to(torch.float32)
    low, high = (float(value) for value in values.aminmax())
    has_fractions = not (batch.dtype == torch.uint8 or "int" in str(batch.dtype))
    shrunk = has_fractions and (low, high) != (0.0, 0.0) and _is_shrunk(facts, values, expected)
    if shrunk or (len(facts["input_shape"]) > 1 and _is_outside(facts, values, expected)):
        kind = str(batch.dtype).removeprefix("torch.")
        raise Misconfigured(
            f"inputs are {kind} from {low:.4g} to {high:.4g}; training had {facts.get('dtype', 'bytes')} from "
            f"{least:.4g} to {most:.4g}. Give inputs scaled as those of training. {_AS_IT_IS}"
        )


def _is_outside(facts: dict[str, Any], values: Tensor, expected: tuple[float, float]) -> bool:
    """Whether too many values lie outside training's range, or too far, to be outliers."""
    least, most = expected
    low, high = (float(value) for value in values.aminmax())
    span = most - least
    slack = 0.0 if facts["unit"] != 1.0 else span
    if low < least - slack or high > most + slack:
        return True
    bottom = least - (_BELOW if least >= 0.0 else _BEYOND) * span
    outside = (values < bottom) | (values > most + _BEYOND * span)
    return float(outside.float().mean()) >= _FEW


def _is_shrunk(facts: dict[str, Any], values: Tensor, expected: tuple[float, float]) -> bool:
    """Whether the values, of a type with fractions, were scaled down while those of training were not."""
    least, most = expected
    low, high = (float(value) for value in values.aminmax())
    largest, magnitude = max(-low, high), max(-least, most)
    is_table, whole = len(facts["input_shape"]) == 1, "int" in facts.get("dtype", "uint8")
    if low >= 0.0 and largest <= 1.0 and most >= _SCALED_FROM and (whole or not is_table):
        return True
    if is_table:
        return False
    if least >= 0.0 and most >= _SCALED_FROM and low < -_BEYOND * high and largest <= _BEYOND * most:
        return True
    if whole and largest <= _SMALL * most and not torch.equal(values, values.round()):
        return True
    never_below = low >= 0.0 and least < -_BELOW * (most - least)
    return len(values) >= _MANY and (largest <= _SMALL * magnitude or never_below)


def _training_range(facts: dict[str, Any]) -> tuple[float, float] | None:
    """The lowest and highest value of training: 0 and the unit for pixels, otherwise as measured."""
    if facts["unit"] != 1.0:
        return 0.0, float(facts["unit"])
    measured = facts.get("value_range")
    return None if measured is None else (float(measured[0]), float(measured[1]))


def as_labels(facts: dict[str, Any], classes: Tensor) -> Tensor | npt.NDArray[np.str_]:
    """Class numbers as the labels of the user's training data: numbers as a tensor, names as an array of strings."""
    values = facts.get("label_values")
    if values is not None and isinstance(values[0], str):
        names: npt.NDArray[np.str_] = np.array(values)[classes.cpu().numpy()]
        return names
    return classes if values is None else torch.tensor(values, device=classes.device)[classes]


def _batch_of(shape: tuple[int, ...]) -> str:
    return f"(batch, {', '.join(map(str, shape))})"
