"""What a trained model is given to predict, compared with what training took: converted alike, or refused."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset

_SCALED_FROM = 16.0
"""Training values that reach so far were not scaled to [0, 1]."""
_MANY = 16
"""Pictures that are not all dark, nor all bright, by chance."""
_SMALL = 0.1
"""Part of training's largest magnitude that the values of many pictures exceed."""
_BELOW, _BEYOND = 0.1, 0.25
"""How far outside values may lie, in units of training's range: below 0 where training had no such values, and else."""
_FEW = 0.01
"""Share of values that may lie farther outside: new pictures have outliers."""
_AS_IT_IS = "To have inputs used as they are, call the model itself."


def model_facts(dataset: Dataset) -> dict[str, Any]:
    """What a saved model must know of its data."""
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
        "label_values": None if dataset.label_values is None else list(dataset.label_values),
    }


def as_trained(facts: dict[str, Any], inputs: Any) -> Tensor:
    """Inputs as training had them stored: pictures of the shape that the user's own had are converted as those were.

    Inputs that are scaled in another way than those of training are refused. Facts of older files may be missing, and
    what they would tell is then not checked.
    """
    given = inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.ascontiguousarray(inputs))
    stored, own = tuple(facts["input_shape"]), tuple(facts.get("given_shape") or ())
    shape = tuple(given.shape[1:])
    if shape not in (stored, own) or given.dim() == 0:
        either = f" or {_shown(own)}" if own else ""
        raise Misconfigured(
            f"inputs have shape {tuple(given.shape)}; expected {_shown(stored)}{either}, as in training. Reshape them."
        )
    if given.numel():
        _check_scale(facts, given)
    if shape == stored:
        return given
    return given.unsqueeze(1) if len(own) < len(stored) else given.movedim(-1, 1)


def _check_scale(facts: dict[str, Any], given: Tensor) -> None:
    """Refuse inputs that are scaled in another way than those of training, by the values of the whole batch.

    The range is training's highest value less its lowest. Refused are:

    - pictures of which 1 % of the values lie above training's highest by more than a quarter of the range, or below its
      lowest by more than a quarter (a tenth where training had no negative values), or a single value by more than the
      range; for a model of pixels, a single value outside of 0 to 255 (or whatever the unit is);
    - fractions in 0 to 1 where training reached 16 or more, except tables of fractions;
    - pictures around 0 (lowest < -highest / 4) that do not exceed a quarter of training's highest value, where training
      reached 16 or more and had no negative values;
    - pictures with fractions that do not exceed a tenth of training's highest value, where training had integers;
    - 16 or more pictures of a type with fractions, none of which exceeds a tenth of training's largest magnitude, or
      none of which has a negative value where training's went below 0 by more than a tenth of the range.

    So a single dark picture passes, and black ones do. Columns of a table have scales of their own, and a new sample
    may lie far outside.
    """
    expected = _training_range(facts)
    if expected is None:
        return
    least, most = expected
    values = given.to(torch.float32)
    low, high = (float(value) for value in values.aminmax())
    has_fractions = not (given.dtype == torch.uint8 or "int" in str(given.dtype))
    shrunk = has_fractions and (low, high) != (0.0, 0.0) and _is_shrunk(facts, values, expected)
    if shrunk or (len(facts["input_shape"]) > 1 and _is_outside(facts, values, expected)):
        kind = str(given.dtype).removeprefix("torch.")
        raise Misconfigured(
            f"inputs are {kind} from {low:.4g} to {high:.4g}; training had {facts.get('dtype', 'bytes')} from "
            f"{least:.4g} to {most:.4g}. Give inputs scaled as those of training. {_AS_IT_IS}"
        )


def _is_outside(facts: dict[str, Any], values: Tensor, expected: tuple[float, float]) -> bool:
    """Whether values lie where training had none, and so many or so far that they are no outliers."""
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
    """Whether values of a type with fractions were scaled down, and those of training were not."""
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
    """Where training's values lay: pixels in 0 to their unit, others where they were seen."""
    if facts["unit"] != 1.0:
        return 0.0, float(facts["unit"])
    seen = facts.get("value_range")
    return None if seen is None else (float(seen[0]), float(seen[1]))


def as_labels(facts: dict[str, Any], classes: Tensor) -> Tensor:
    """The user's labels of class numbers."""
    values = facts.get("label_values")
    return classes if values is None else torch.tensor(values, device=classes.device)[classes]


def _shown(shape: tuple[int, ...]) -> str:
    return f"(batch, {', '.join(map(str, shape))})"
