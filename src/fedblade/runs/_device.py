"""The device of a run, and the precision of float32 products on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fedblade.core.errors import Misconfigured


def find_device(name: str) -> torch.device:
    """The device that a configuration asks for; `auto` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise Misconfigured(f"device = '{name}' is unknown; expected auto, cpu, cuda or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise Misconfigured(f"device = '{name}' is not supported; expected auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise Misconfigured(
            f"device = '{name}' was asked for, but torch sees {torch.cuda.device_count()} CUDA device(s) here. "
            f"Use device=auto or device=cpu; `fedblade doctor` says what was found."
        )
    return device


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Whether matrix products, convolutions and recurrent layers may use TF32 in this block. The old setting returns.

    PyTorch allows TF32 in convolutions by default. A run does not, unless its configuration asks for it.
    """
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    settings = (cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [setting.fp32_precision for setting in settings]
    try:
        for setting in settings:
            setting.fp32_precision = "tf32" if tf32 else "ieee"
        yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision
