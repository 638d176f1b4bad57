"""Runs exported models where there is no fedblade: arguments are a file of inputs and a file for the logits.

The names in the file of inputs are those of the models beside it.
"""

import sys
from pathlib import Path

import numpy as np
import torch

WITHOUT_FEDBLADE = "import runpy, sys; sys.modules['fedblade'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
"""What a fresh process of Python is started with, before the path of this file."""


def logits_of(model: Path, inputs: np.ndarray) -> np.ndarray:
    """The logits that ONNX Runtime or plain torch computes."""
    if model.suffix == ".onnx":
        import onnxruntime

        return onnxruntime.InferenceSession(model).run(["logits"], {"inputs": inputs})[0]
    return torch.export.load(model).module()(torch.from_numpy(inputs)).numpy()


def main(inputs_file: Path, logits_file: Path) -> None:
    """Compute the logits of the first input and of all others, so that the batch size changes."""
    found = {}
    for name, inputs in np.load(inputs_file, allow_pickle=False).items():
        for model in (inputs_file.with_name(f"{name}.onnx"), inputs_file.with_name(f"{name}.pt2")):
            found[model.name] = np.concatenate([logits_of(model, part) for part in (inputs[:1], inputs[1:])])
    np.savez(logits_file, **found)


if __name__ == "__main__":
    main(Path(sys.argv[2]), Path(sys.argv[3]))
