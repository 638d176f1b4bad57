"""What a program must know to use an exported model, as plain values, without the folders of this machine."""

import json
from collections.abc import Mapping
from typing import Any

from fedblade._version import __version__
from fedblade.exports._network import TrainedNetwork
from fedblade.results import RunRecord

KEY = "fedblade"
"""The name of the description inside a file."""


def describe(network: TrainedNetwork, run: RunRecord, *, inside: bool) -> dict[str, Any]:
    """The description. `inside` says that the preprocessing is a part of the exported model.

    The encoding of a table's columns is never inside: `preprocessing.table` says how a program makes inputs of rows.
    """
    facts = network.facts
    given = facts.get("given_shape")
    return {
        "version": 1,
        "input": {
            "name": "inputs",
            "dtype": network.dtype_name,
            "shape": ["batch", *facts["input_shape"]],
            "shape_of_training_data": None if given is None else ["batch", *given],
        },
        "preprocessing": {
            "done_by": "the model" if inside else "the caller",
            "formula": "(inputs / unit - mean) / std",
            "unit": facts["unit"],
            "mean": list(facts["mean"]),
            "std": list(facts["std"]),
            "table": facts.get("encoding"),
        },
        "output": {"name": "logits", "shape": ["batch", facts["num_classes"]], "probabilities": "softmax(logits)"},
        "class_names": network.class_names,
        "label_values": facts.get("label_values"),
        "model": _without_empty(run.config.get("model")) or {"name": without_folders(run.part("model"))},
        "method": without_folders(run.part("method")),
        "dataset": without_folders(run.part("dataset")),
        "fedblade": __version__,
    }


def as_json(description: Mapping[str, Any]) -> str:
    """The description as the text of a file."""
    return json.dumps(description, indent=2, ensure_ascii=False) + "\n"


def shareable(table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as others may see them, without the folders of this machine.

    Paths of data are left out; a reference to a file, such as `/home/me/mine.py:net`, loses its folders.
    """
    return {key: _shareable_value(value) for key, value in table.items() if key != "path"}


def without_folders(text: str) -> str:
    """The text behind the last separator of folders."""
    return text.replace("\\", "/").rpartition("/")[2]


def _shareable_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return shareable(value)
    if isinstance(value, list | tuple):
        return [_shareable_value(item) for item in value]
    return without_folders(value) if isinstance(value, str) else value


def _without_empty(table: object) -> dict[str, Any]:
    settings = shareable(table) if isinstance(table, Mapping) else {}
    return {key: value for key, value in settings.items() if value != "none"}
