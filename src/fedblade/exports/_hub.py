"""A folder in the form of a model hub: model files, configuration, preprocessing, class names and a model card."""

from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.files import write_file
from fedblade.exports._description import as_json, describe, shareable
from fedblade.exports._formats import safetensors_bytes, torch_bytes
from fedblade.exports._model_card import model_card
from fedblade.exports._network import TrainedNetwork
from fedblade.results import RunRecord

TENSORS, PROGRAM, CONFIG, PREPROCESSING, CARD = (
    "model.safetensors", "model.pt2", "config.json", "preprocessor_config.json", "README.md",
)  # fmt: skip


def write_hub_folder(network: TrainedNetwork, run: RunRecord, folder: Path) -> Path:
    """Write the folder and return it. A folder with files is refused, because its card may have been edited."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise Misconfigured(f"'{folder}' is there already, and its card may have been edited. Give another --out.")
    description = describe(network, run, inside=True)
    preprocessing = {key: description[key] for key in ("input", "preprocessing")}
    configuration = {
        **{key: value for key, value in description.items() if key not in preprocessing},
        "id2label": {str(number): name for number, name in enumerate(network.class_names)},
        "run": shareable(run.config),
    }
    write_file(folder / PROGRAM, torch_bytes(network, description))
    write_file(folder / TENSORS, safetensors_bytes(network, describe(network, run, inside=False)))
    write_file(folder / CONFIG, as_json(configuration))
    write_file(folder / PREPROCESSING, as_json(preprocessing))
    write_file(folder / CARD, model_card(network, run))
    return folder
