"""A trained network, ready to predict, from memory or from a run folder."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedblade.config.run_config import complete_config
from fedblade.core.errors import CorruptFile, Misconfigured
from fedblade.core.network import Network
from fedblade.core.state import ServerState
from fedblade.core.tensorfile import encode_tensors, read_tensors
from fedblade.core.tree import Tree
from fedblade.exports import TrainedNetwork, export_model
from fedblade.results import CONFIG, MODEL, RunDirectory, RunRecord, read_runs, resume_command
from fedblade.runs._model_inputs import as_labels, as_trained
from fedblade.runs._plain_module import plain_module
from fedblade.runs._stored_network import stored_network

_NOT_TRAINED = (
    "the model of a result predicts and is not trained. Train the plain module that it gives: "
    "net = result.model.module().train(). It takes result.model.normalise(inputs)."
)


class TrainedModel(nn.Module):
    """Inputs to logits: normalisation, body and head as one module, in evaluation mode.

    `predict` gives labels, `module` the network as a plain module to train and to save, and `export` writes it in a
    format that other programs load. `read_record` reads the run that the network comes from.
    """

    def __init__(
        self, network: Network, state: ServerState, facts: dict[str, Any], read_record: Callable[[], RunRecord]
    ) -> None:
        super().__init__()
        self._network = network
        self.facts = facts
        self.read_record = read_record
        self._names: dict[str, tuple[str, str]] = {}
        for kind, tree in (("params", state.params), ("buffers", state.buffers), ("fixed", state.fixed)):
            for name, leaf in tree.items():
                key = f"{kind}_{len(self._names)}_{name.replace('.', '_')}"
                self._names[key] = (kind, name)
                copied = leaf.detach().clone()
                if kind == "buffers":
                    self.register_buffer(key, copied)
                else:
                    self.register_parameter(key, nn.Parameter(copied, requires_grad=False))
        example = next(iter(state.params.values()))
        channels = (-1,) + (1,) * (len(facts["input_shape"]) - 1)
        self.register_buffer(
            "mean", torch.tensor(facts["mean"], dtype=torch.float64).to(example).reshape(channels), persistent=False
        )
        self.register_buffer(
            "std", torch.tensor(facts["std"], dtype=torch.float64).to(example).reshape(channels), persistent=False
        )
        self.eval()

    def extra_repr(self) -> str:
        """What the model takes and gives, for its line in a Python session."""
        return f"inputs [batch, {', '.join(map(str, self.facts['input_shape']))}], {self.facts['num_classes']} classes"

    def _tree(self, kind: str) -> Tree:
        return {name: getattr(self, key) for key, (stored_kind, name) in self._names.items() if stored_kind == kind}

    def normalise(self, inputs: Tensor) -> Tensor:
        """What the network saw in training for inputs as the data set stores them: (inputs / unit - mean) / std."""
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        normalised: Tensor = (inputs.to(mean.dtype) / self.facts["unit"] - mean) / std
        return normalised

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of inputs [batch, …] as the data set stores them."""
        body = self._network.complete(self._tree("params"), self._tree("fixed"))
        return self._network.features(body, self._tree("buffers"), self.normalise(inputs), training=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [batch, classes] of inputs [batch, …] as the data set stores them."""
        return self._network.output(self._tree("params"), self._tree("fixed"), self.features(inputs)).logits

    def train(self, mode: bool = True) -> Self:
        """Evaluation mode is the only one; for training there is `module`."""
        if mode:
            raise Misconfigured(_NOT_TRAINED)
        return super().train(mode)

    def module(self) -> nn.Module:
        """A new plain module with the trained weights: the user's own, with the names of the user's own layers.

        It takes `normalise(inputs)` and returns logits, and is in evaluation mode. The trained head is in the place of
        the last layer that was cut off. Without such a layer the module has the parts `body` and `head`. Heads are
        layers of `torch.nn`: a linear layer where logits are linear in the features, otherwise an `nn.Sequential` of
        `nn.Linear` and `nn.RMSNorm` (docs/how-to-own-models.md). What a method does not train has
        `requires_grad=False`.
        """
        return plain_module(self._network, *(self._tree(kind) for kind in ("params", "buffers", "fixed")))

    @torch.no_grad()
    def predict(self, inputs: Any) -> Tensor | npt.NDArray[np.str_]:
        """The label of every input. `inputs` is an array or tensor [batch, …] of training's type, scale and shape.

        A model that was trained on a table takes rows with names of columns: a data frame, a dict of columns, a list of
        dicts, or the path of a file. Labels are those of the training data: a tensor, or an array of strings. Pictures
        may have their channels last if those of training had. Inputs with another scale are refused. `forward` checks
        nothing and numbers the classes from 0.
        """
        return as_labels(self.facts, self._checked_logits(inputs).argmax(dim=1))

    @torch.no_grad()
    def probabilities(self, inputs: Any) -> Tensor:
        """The probability of every class for every input, [batch, classes]; `inputs` as for `predict`."""
        return self._checked_logits(inputs).softmax(dim=1)

    def _checked_logits(self, inputs: Any) -> Tensor:
        logits: Tensor = self(as_trained(self.facts, inputs).to(self.get_buffer("mean").device))
        return logits

    def export(self, path: str | Path | None = None, format: str = "onnx") -> Path:  # noqa: A002 - the command's word
        """Write the model for programs that do not have fedblade, and return the path of what was written.

        - "onnx": an ONNX graph; needs the extra `onnx`.
        - "torch": a program of `torch.export`, for `torch.export.load(path).module()`.
        - "safetensors": the tensors of `module()` by their names.
        - "hub": a folder with "torch", "safetensors", configuration, preprocessing and a model card. Nothing is sent.

        Programs and graphs take inputs of any batch size, in the type and scale in which the data set holds them, and
        give logits. A JSON file beside the file has preprocessing and class names. A method without a global model is
        refused.
        """
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        network = TrainedNetwork(self.module(), mean, std, self.facts, self.read_record)
        return export_model(network, None if path is None else Path(path), format)

    def export_onnx(self, path: str | Path) -> Path:
        """Write the model as an ONNX file: `export(path, "onnx")`."""
        return self.export(path, "onnx")


def save_model(directory: RunDirectory, state: ServerState, facts: dict[str, Any]) -> None:
    """Write `model.safetensors`: the network's tensors, and the facts that are needed to use them."""
    content, _ = encode_tensors(state.replace(extra={}).flat(), facts)
    directory.write(MODEL, content)


def stored_record(folder: Path) -> Callable[[], RunRecord]:
    """Reads a run from its folder, when it is called."""
    return lambda: read_runs([folder])[0]


def load(path: str | Path, model: nn.Module | None = None) -> TrainedModel:
    """The trained network of a finished run. If the run was given a module from Python, pass it as `model` again."""
    folder = Path(path)
    directory = RunDirectory(folder)
    if not directory.exists:
        raise Misconfigured(f"'{folder}' holds no run (no {CONFIG}). Give the folder that `fedblade run` wrote.")
    changed = directory.changed_files([MODEL])  # a folder of a newer format is refused here
    if not (folder / MODEL).is_file():
        raise Misconfigured(
            f"'{folder}' has no {MODEL}: the run has not finished, or was kept without it. "
            f"{resume_command(folder)} writes it, if there are checkpoints."
        )
    if changed:
        raise CorruptFile(
            f"'{folder / MODEL}' is not the model that the run ended with. {resume_command(folder)} makes it again."
        )
    config = complete_config(directory.stored_config())
    tensors, facts = read_tensors(folder / MODEL)
    if model is not None and config.model.entry is not None:
        raise Misconfigured(
            f"the run in '{folder}' has the model '{config.model.name}', which is found by its name. Leave model out: "
            f"fedblade.load(path)."
        )
    if config.model.entry is None and model is None:
        raise Misconfigured(
            "this run got its model from Python as an object. Pass the module again: fedblade.load(path, model=…)."
        )
    built, state = stored_network(config, directory, tensors, facts, model)
    # Which layers are frozen is stored in the run; the flags of the module may have changed.
    frozen = frozenset(name for name in state.fixed if name.startswith("body."))
    return TrainedModel(replace(built.network, frozen=frozen), state, facts, stored_record(folder))
