"""Writes a trained model as a file with its description beside it, or as a folder with a model card."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.files import write_file
from fedblade.exports._description import as_json, describe
from fedblade.exports._formats import onnx_bytes, safetensors_bytes, torch_bytes
from fedblade.exports._hub import write_hub_folder
from fedblade.exports._network import TrainedNetwork
from fedblade.results import RunRecord

_ENDINGS: Mapping[str, str] = {"safetensors": ".safetensors", "torch": ".pt2", "onnx": ".onnx", "hub": "-hub"}
_CONTENT: Mapping[str, Callable[[TrainedNetwork, Mapping[str, Any]], bytes]] = {
    "safetensors": safetensors_bytes,
    "torch": torch_bytes,
    "onnx": onnx_bytes,
}


def export_model(network: TrainedNetwork, path: Path | None, form: str) -> Path:
    """Write the model in a format and return the path of what was written.

    A file gets a description of the same name with the ending `.json` beside it. Without `path` the name is that of
    the run, in the working directory.
    """
    if form not in _ENDINGS:
        raise Misconfigured(f"there is no format '{form}'.{nearest(form, tuple(_ENDINGS))}")
    run = network.read_record()
    require_global_model(run)
    if path is None:
        path = Path(_run_name(run) + _ENDINGS[form])
    if form == "hub":
        return write_hub_folder(network, run, path)
    _check_target(path, form)
    description = describe(network, run, inside=form != "safetensors")
    write_file(path, _CONTENT[form](network, description))
    write_file(path.with_suffix(".json"), as_json({"file": path.name} | description))
    return path


def _check_target(path: Path, form: str) -> None:
    """Refuse a path that cannot be the file, and a description that would replace a file of something else."""
    ending = _ENDINGS[form]
    if path.is_dir() or path.suffix in {".json", *_ENDINGS.values()} - {ending}:
        raise Misconfigured(
            f"'{path}' cannot be the file of a model in the format {form}. Give a file such as model{ending}."
        )
    beside = path.with_suffix(".json")
    if beside.exists() and not _is_description(beside):
        raise Misconfigured(
            f"the description of the model would replace '{beside}', which is something else. Give another --out."
        )


def _is_description(file: Path) -> bool:
    """Whether an earlier export has written this file."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"file", "preprocessing", "output"} <= content.keys()


def _run_name(run: RunRecord) -> str:
    """The name of the run's folder; a run without a folder has the name of its method."""
    return run.path.resolve().name if run.path.is_dir() else str(run.part("method"))


def require_global_model(run: RunRecord) -> None:
    """Refuse a run whose method has no global model: its file of the model is not what any client uses."""
    if run.accuracy_of == "personal":
        raise Misconfigured(
            f"the method '{run.part('method')}' has no global model: each client keeps its own, so there is no one "
            f"model to take from this run. Choose a run of a method with a global model, such as fedavg."
        )
