"""`fedblade doctor`: what is installed, what is missing, and what to do about it."""

import importlib.util
import os
import platform

import typer

_EXTRAS = {
    "data": "pyarrow", "figures": "matplotlib", "pandas": "pandas", "onnx": "onnxscript", "flower": "flwr",
    "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb", "bench": "pfl",
}  # fmt: skip
"""A module of each extra, which is there only if the extra is installed."""


def doctor() -> None:
    """Check the environment: versions, devices, extras and data."""
    import importlib.metadata

    import torch

    from fedblade._version import __version__
    from fedblade.core.registry import datasets
    from fedblade.data import status

    versions = {
        name: importlib.metadata.version(name) for name in ("torch", "numpy", "pydantic", "typer", "safetensors")
    }
    lines = [
        ("fedblade", __version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *versions.items(),
        ("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"),
        ("gpu", _gpu()),
        *((f"extra {name}", _extra(name, module)) for name, module in _EXTRAS.items()),
        *((f"data {dataset.name}", f"{dataset.state}; {dataset.note}") for dataset in map(status, datasets.names())),
    ]
    for name, value in lines:
        typer.echo(f"{name:<23}{value}")


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none found by torch; runs use the CPU (device=auto)"
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{', '.join(names)} (CUDA {torch.version.cuda})"


def _extra(name: str, module: str) -> str:
    installed = importlib.util.find_spec(module) is not None
    return "installed" if installed else f"missing; pip install 'fedblade[{name}]'"
