"""Whether float32 products on a GPU may round to TF32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Matrix products, convolutions and recurrent layers inside use TF32 or not; the caller's choice is put back.

    PyTorch allows TF32 in convolutions unless told otherwise; here a run is exact unless it asks for it.
    """
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    parts = (cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [part.fp32_precision for part in parts]
    try:
        for part in parts:
            part.fp32_precision = "tf32" if tf32 else "ieee"
        yield
    finally:
        for part, precision in zip(parts, before, strict=True):
            part.fp32_precision = precision
