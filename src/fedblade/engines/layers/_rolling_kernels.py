"""Depthwise 3×3 convolutions of stride 1 on a GPU, row by row: values are read and normalised three times, not nine.

A program takes COLUMNS neighbouring columns (sample, w) of the maps and goes down a segment of their rows h. Each row
that it reads adds to the three outputs around it, which are kept in registers until they are complete. Arguments are as
in `_depthwise_kernels.py`.
"""

import triton
import triton.language as tl

from fedblade.engines.layers._depthwise_kernels import inputs_at, real_at, store_sums, tap
from fedblade.engines.layers._norm_kernels import NUMBERS, first_padding


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    x, filters, y, facts, columns, units, height, width, segment,
    NORM: tl.constexpr, RELU: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Outputs of a segment of rows."""
    channels = units * ALIGN
    q = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    ok = q < columns
    w = q % width
    start = tl.program_id(2) * segment
    end = tl.minimum(start + segment, height)
    factor = tl.zeros((CHANNELS,), tl.float32)
    shift = factor
    if NORM:
        factor = tl.load(facts + 3 * channels + column, mask=inside, other=0.0)
        shift = tl.load(facts + 4 * channels + column, mask=inside, other=0.0)
    f0, f1, f2 = tap(filters, column, inside, 0), tap(filters, column, inside, 1), tap(filters, column, inside, 2)
    f3, f4, f5 = tap(filters, column, inside, 3), tap(filters, column, inside, 4), tap(filters, column, inside, 5)
    f6, f7, f8 = tap(filters, column, inside, 6), tap(filters, column, inside, 7), tap(filters, column, inside, 8)
    left = (ok & (w > 0))[:, None] & inside[None, :]
    middle = ok[:, None] & inside[None, :]
    right = (ok & (w < width - 1))[:, None] & inside[None, :]
    line = tl.cast(width * channels, tl.int64)
    first = ((q // width) * height * width + w)[:, None].to(tl.int64) * channels + column[None, :]
    above = tl.zeros((COLUMNS, CHANNELS), tl.float32)
    here = above
    for h in range(start - 1, end + 1):
        known = (h >= 0) & (h < height)
        place = first + h * line
        a = inputs_at(x, place - channels, left & known, factor, shift, NORM, RELU)
        b = inputs_at(x, place, middle & known, factor, shift, NORM, RELU)
        c = inputs_at(x, place + channels, right & known, factor, shift, NORM, RELU)
        above += a * f6 + b * f7 + c * f8
        tl.store(y + place - line, above.to(y.dtype.element_ty), mask=middle & (h - 1 >= start))
        above = here + a * f3 + b * f4 + c * f5
        here = a * f0 + b * f1 + c * f2


@triton.jit(do_not_specialize=NUMBERS)
def backward(
    x, dy, dx, sizes, filters, facts, parts, columns, units, height, width, per_client, segment,
    NORM: tl.constexpr, RELU: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Gradients of a segment of rows, and their sums for the filters, and with NORM for the normalisation."""
    channels = units * ALIGN
    q = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    ok = q < columns
    w = q % width
    start = tl.program_id(2) * segment
    end = tl.minimum(start + segment, height)
    mean = tl.zeros((CHANNELS,), tl.float32)
    inverse, factor, shift = mean, mean, mean
    if NORM:
        mean = tl.load(facts + channels + column, mask=inside, other=0.0)
        inverse = tl.load(facts + 2 * channels + column, mask=inside, other=0.0)
        factor = tl.load(facts + 3 * channels + column, mask=inside, other=0.0)
        shift = tl.load(facts + 4 * channels + column, mask=inside, other=0.0)
    f0, f1, f2 = tap(filters, column, inside, 0), tap(filters, column, inside, 1), tap(filters, column, inside, 2)
    f3, f4, f5 = tap(filters, column, inside, 3), tap(filters, column, inside, 4), tap(filters, column, inside, 5)
    f6, f7, f8 = tap(filters, column, inside, 6), tap(filters, column, inside, 7), tap(filters, column, inside, 8)
    # Padding is read and then set to 0: masks that differ by channel would split the loads.
    real = (q // width)[:, None] < first_padding(sizes, column, inside, 1, per_client)[None, :]
    middle = ok[:, None] & inside[None, :]
    before = (ok & (w > 0))[:, None] & inside[None, :]
    after = (ok & (w < width - 1))[:, None] & inside[None, :]
    line = tl.cast(width * channels, tl.int64)
    first = ((q // width) * height * width + w)[:, None].to(tl.int64) * channels + column[None, :]
    zero = tl.zeros((COLUMNS, CHANNELS), tl.float32)
    s0, s1, s2, s3, s4, s5, s6, s7, s8, plain, along = zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero
    above, here = zero, zero
    # These values only change their names from row to row. With one common start the compiler takes them for constants.
    raw_above, raw_here = tl.zeros((COLUMNS, CHANNELS), tl.float32), tl.zeros((COLUMNS, CHANNELS), tl.float32)
    in_above, in_here = tl.zeros((COLUMNS, CHANNELS), tl.float32), tl.zeros((COLUMNS, CHANNELS), tl.float32)
    for h in range(start - 1, end + 1):
        known = (h >= 0) & (h < height)
        place = first + h * line
        a = real_at(dy, place + channels, after & known, real)
        b = real_at(dy, place, middle & known, real)
        c = real_at(dy, place - channels, before & known, real)
        # The row below, if it is in this segment: other programs have the other rows.
        in_segment = middle & (h + 1 >= start) & (h + 1 < end)
        raw_below = real_at(x, place + line, in_segment, real)
        in_below = raw_below
        if NORM:
            in_below = raw_below * factor[None, :] + shift[None, :]
            if RELU:
                in_below = tl.maximum(in_below, 0.0)
            in_below = tl.where(in_segment & real, in_below, 0.0)
        above += a * f0 + b * f1 + c * f2
        s0 += in_above * a
        s1 += in_above * b
        s2 += in_above * c
        s3 += in_here * a
        s4 += in_here * b
        s5 += in_here * c
        s6 += in_below * a
        s7 += in_below * b
        s8 += in_below * c
        done = middle & (h - 1 >= start)
        if NORM:
            if RELU:
                above = tl.where(in_above > 0, above, 0.0)
            above = tl.where(done & real, above, 0.0)
            plain += above
            along += above * (raw_above - mean[None, :]) * inverse[None, :]
        tl.store(dx + place - line, above.to(dx.dtype.element_ty), mask=done)
        above = here + a * f3 + b * f4 + c * f5
        here = a * f6 + b * f7 + c * f8
        raw_above, in_above = raw_here, in_here
        raw_here, in_here = raw_below, in_below
    split = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    step = tl.num_programs(0) * tl.num_programs(2) * channels
    into = parts + split * channels + column
    store_sums(into, step, inside, s0, s1, s2, s3, s4, s5, s6, s7, s8)
    if NORM:
        tl.store(into + 9 * step, tl.sum(plain, 0), mask=inside)
        tl.store(into + 10 * step, tl.sum(along, 0), mask=inside)
