"""The contents of model files: tensors alone (safetensors), a program of `torch.export`, a graph for ONNX."""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from safetensors.torch import save
from torch.export import Dim, ExportedProgram

from fedblade.core.errors import RunFailed
from fedblade.core.extras import need
from fedblade.exports._description import KEY
from fedblade.exports._network import FromStoredInputs, TrainedNetwork

_REGISTRATION = "torch.onnx._internal.exporter._registration"
"""The logger that reports that torchvision is missing, which no model needs."""


def safetensors_bytes(network: TrainedNetwork, description: Mapping[str, Any]) -> bytes:
    """The tensors of the plain module by its own names, with the description in the header."""
    tensors = {name: leaf.detach().cpu().clone() for name, leaf in network.module.state_dict().items()}
    return save({name: leaf.contiguous() for name, leaf in tensors.items()}, {KEY: json.dumps(description)})


def torch_bytes(network: TrainedNetwork, description: Mapping[str, Any]) -> bytes:
    """A program of `torch.export` of stored inputs, with the description as the extra file `fedblade.json`."""
    with _quiet_exporter(), io.BytesIO() as file:
        torch.export.save(_program(network), file, extra_files={f"{KEY}.json": json.dumps(description)})
        return file.getvalue()


def onnx_bytes(network: TrainedNetwork, description: Mapping[str, Any]) -> bytes:
    """An ONNX graph of stored inputs, with the description among its metadata."""
    # torch's exporter imports both itself.
    for package in ("onnx", "onnxscript"):
        need(package, "onnx", package, "an export to ONNX")
    with _quiet_exporter():
        exported = torch.onnx.export(
            _program(network), dynamo=True, external_data=False, verbose=False,
            input_names=["inputs"], output_names=["logits"],
        )  # fmt: skip
    if exported is None:
        raise RunFailed("torch's ONNX exporter gave no model. Export with --format torch.")
    proto = exported.model_proto
    _name_batch_axis(proto.graph)
    entry = proto.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(description)
    content: bytes = proto.SerializeToString()
    return content


def _program(network: TrainedNetwork) -> ExportedProgram:
    """The exported program with a free batch axis, without the paths of this machine's source files."""
    module, batch = FromStoredInputs(network), Dim("batch", min=1)
    try:
        program = torch.export.export(module, (network.example(),), dynamic_shapes={"inputs": {0: batch}})
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunFailed(
            f"torch.export cannot export this model ({type(error).__name__}: {reason}). "
            f"Export its tensors with --format safetensors."
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def _name_batch_axis(graph: Any) -> None:
    """Call the free axis `batch` wherever it occurs; the exporter gives it a name such as `s85`."""
    given = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == given:
                axis.dim_param = "batch"


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without torch's messages about itself: what torch has deprecated, and that torchvision is missing."""
    logger = logging.getLogger(_REGISTRATION)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            # An LSTM lists its weights anew; the tests compare the exported one with the trained one.
            warnings.filterwarnings(
                "ignore", message=".*_flat_weights.*were assigned during export", category=UserWarning
            )
            yield
    finally:
        logger.setLevel(level)
