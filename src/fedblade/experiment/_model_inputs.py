"""What a trained model is given to predict, compared with what training took: converted alike, or refused."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.data import Dataset

_SCALED_FROM = 16.0
"""Training values that reach so far were not scaled to [0, 1]."""
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
    """Refuse inputs that were scaled where training's were not, or the other way round."""
    low, high = (float(value) for value in given.to(torch.float32).aminmax())
    expected = _training_range(facts)
    if expected is None:
        return
    least, most = expected
    is_table, whole = len(facts["input_shape"]) == 1, "int" in facts.get("dtype", "uint8")
    has_fractions = not (given.dtype == torch.uint8 or "int" in str(given.dtype))
    shrunk = has_fractions and low >= 0.0 and 0.0 < high <= 1.0 and most >= _SCALED_FROM and (whole or not is_table)
    # Columns of a table have scales of their own, and a new sample may lie far outside.
    slack = 0.0 if facts["unit"] != 1.0 else most - least
    outside = not is_table and (low < least - slack or high > most + slack)
    if shrunk or outside:
        kind = str(given.dtype).removeprefix("torch.")
        raise Misconfigured(
            f"inputs are {kind} from {low:.4g} to {high:.4g}; training had {facts.get('dtype', 'bytes')} from "
            f"{least:.4g} to {most:.4g}. Give inputs scaled as those of training. {_AS_IT_IS}"
        )


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
