"""What tests on a GPU share: the marks of tests that need one, and the line that `make test-gpu` prints."""

import importlib.util
import subprocess
import time
from pathlib import Path

import pytest
import torch

_NEEDS_TRITON = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton for the kernels")
NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    _NEEDS_TRITON,
]
"""Marks of a test that runs on a GPU alone."""
KERNEL_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Where tests run kernels: without a GPU, Triton's interpreter computes them with NumPy (`tests/conftest.py`)."""
NEEDS_KERNELS = [
    pytest.mark.gpu if torch.cuda.is_available() else pytest.mark.thorough,
    # The interpreter also computes the lanes that a mask leaves out.
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
    _NEEDS_TRITON,
]
"""Marks of a test of kernels, on a GPU or interpreted."""
_began = time.monotonic()


def commit() -> str:
    """The short id of the commit that is checked out, with a + if files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def line_of(stats: dict[str, list[object]]) -> str:
    """What benchmarks/README.md says of the tests: how many passed, and where."""
    counts = {kind: len(stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")}
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count or kind == "passed")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    seconds = time.monotonic() - _began
    return f"GPU tests: {words} · {device} · torch {torch.__version__} · commit {commit()} · {seconds:.0f} s"
