"""What an export needs to know of a trained network, and the network as a module of stored inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedblade.results import RunRecord


def class_names(facts: Mapping[str, Any]) -> list[str]:
    """The names of the classes: those of the data set, or else the user's labels, or else their numbers."""
    named = facts.get("class_names") or facts.get("label_values") or range(facts["num_classes"])
    return [str(name) for name in named]


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network and where it comes from.

    - `module`: a plain module of normalised inputs that returns logits, in evaluation mode.
    - `mean`, `std`: the normalisation per channel, in the shape that broadcasts over a batch of inputs.
    - `facts`: what `model.safetensors` stores of the data, such as the shape of an input and the names of the classes.
    - `read_record`: reads the run that trained the network.
    """

    module: nn.Module
    mean: Tensor
    std: Tensor
    facts: Mapping[str, Any]
    read_record: Callable[[], RunRecord]

    @property
    def input_dtype(self) -> torch.dtype:
        """The type of stored inputs; runs of earlier versions do not name it, and take float32."""
        dtype: torch.dtype = getattr(torch, self.facts.get("dtype", "float32"))
        return dtype

    @property
    def dtype_name(self) -> str:
        """The name of this type, such as `float32`."""
        return str(self.input_dtype).removeprefix("torch.")

    @property
    def class_names(self) -> list[str]:
        """The names of the classes in the order of the logits."""
        return class_names(self.facts)

    def example(self) -> Tensor:
        """Two inputs of zeros, from which an exporter learns shape and type."""
        return torch.zeros(2, *self.facts["input_shape"], dtype=self.input_dtype)


class FromStoredInputs(nn.Module):
    """Logits [batch, classes] of inputs [batch, …] as the data set holds them: normalisation and network in one."""

    def __init__(self, network: TrainedNetwork) -> None:
        super().__init__()
        self.register_buffer("mean", network.mean.detach().cpu().clone())
        self.register_buffer("std", network.std.detach().cpu().clone())
        self.unit = float(network.facts["unit"])
        self.network = network.module.cpu().requires_grad_(False)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of (inputs / unit - mean) / std."""
        mean = self.get_buffer("mean")
        logits: Tensor = self.network((inputs.to(mean.dtype) / self.unit - mean) / self.get_buffer("std"))
        return logits
