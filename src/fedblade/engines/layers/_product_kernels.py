"""Products over many rows of few columns on a GPU: Σ_r a[r, i]·b[r, j] for each client, without copies of the maps."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedblade.engines.layers._norm_kernels import NUMBERS

_ROWS, _WIDE, _PROGRAMS = 32, 64, 1056
NARROW = 32
"""Columns of the narrower side up to which these kernels are faster than torch's, whose tiles are wider."""
MANY = 8192
"""Rows from which these kernels are faster."""


@triton.jit(do_not_specialize=NUMBERS)
def _products(
    narrow, wide, parts, rows, per_split, narrow_units, wide_units, narrow_step, wide_step,
    TF32: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr, NARROW: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One tile of one client's product over a stretch of rows; parts is [splits, clients, ·, ·]."""
    narrow_columns, wide_columns = narrow_units * ALIGN, wide_units * ALIGN
    tile, client, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i = tl.arange(0, NARROW)
    j = tile * WIDE + tl.arange(0, WIDE)
    clients = tl.num_programs(1)
    total = tl.zeros((NARROW, WIDE), tl.float32)
    last = tl.minimum((split + 1) * per_split, rows)
    for start in range(split * per_split, last, ROWS):
        row = (start + tl.arange(0, ROWS)).to(tl.int64)
        known = (row < last)[:, None]
        a = tl.load(
            narrow + row[:, None] * (clients * narrow_columns) + client * narrow_columns + i[None, :],
            mask=known & (i < narrow_columns)[None, :],
            other=0.0,
        )
        b = tl.load(
            wide + row[:, None] * (clients * wide_columns) + client * wide_columns + j[None, :],
            mask=known & (j < wide_columns)[None, :],
            other=0.0,
        )
        total = tl.dot(tl.trans(a), b, total, input_precision="tf32" if TF32 else "ieee")
    place = (split * clients + client) * narrow_columns * wide_columns
    place = place + i[:, None] * narrow_step + j[None, :] * wide_step
    tl.store(parts + place, total, mask=(i < narrow_columns)[:, None] & (j < wide_columns)[None, :])


def fits(left: Tensor, right: Tensor, clients: int) -> bool:
    """Whether the kernels are faster for these two sides [rows, clients·columns]."""
    narrow = min(left.shape[1], right.shape[1]) // clients
    exact = left.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32"
    return left.is_cuda and len(left) >= MANY and narrow <= NARROW and not exact


def over_rows(left: Tensor, right: Tensor, clients: int) -> Tensor:
    """Leftᵀ·right for each client [clients, columns of left, columns of right], from rows [rows, clients·columns]."""
    rows = len(left)
    a, b = left.shape[1] // clients, right.shape[1] // clients
    sides = (left, right, a, b, b, 1) if a <= b else (right, left, b, a, 1, b)
    narrow, wide, narrow_columns, wide_columns, narrow_step, wide_step = sides
    tiles = triton.cdiv(wide_columns, _WIDE)
    splits = max(1, min(128, _PROGRAMS // (tiles * clients), triton.cdiv(rows, 4 * _ROWS)))
    per_split = _ROWS * triton.cdiv(triton.cdiv(rows, splits), _ROWS)
    parts = torch.empty(splits, clients, a, b, device=left.device)
    align = next(unit for unit in (8, 4, 1) if a % unit == b % unit == 0)
    _products[tiles, clients, splits](
        narrow, wide, parts, rows, per_split, narrow_columns // align, wide_columns // align, narrow_step, wide_step,
        TF32=left.dtype == torch.float32, ALIGN=align, ROWS=_ROWS,
        NARROW=16 if narrow_columns <= 16 else NARROW, WIDE=_WIDE,
    )  # fmt: skip
    return parts.sum(0).to(left.dtype)
