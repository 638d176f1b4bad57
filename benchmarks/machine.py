"""What a benchmark ran on: processor, accelerator and versions."""

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

import fedblade

_PACKAGES = ("torch", "numpy", "flwr", "ray", "pfl")
_CPUINFO = Path("/proc/cpuinfo")


def hardware() -> str:
    """Processor, cores, and GPUs if torch sees any."""
    processor = f"{_processor()}, {os.cpu_count()} cores"
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return "; ".join([processor, *gpus])


def versions() -> dict[str, str]:
    """Versions of this library, of Python and of the packages that are compared, where installed."""
    known = {"fedblade": fedblade.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return known


def _processor() -> str:
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
