"""Depthwise 3×3 convolutions of stride 2 on a GPU, which normalise and activate what they read.

Maps are rows [batch·pixels, channels] with channels last, filters [channels, 9]. With NORM the input is
relu(x·factor + shift) by `facts` of `_norm_kernels.py`, computed when a value is read, so that the maps between are
never written; without it the input is x. `_rolling_kernels.py` has the faster form for stride 1.
"""

import triton
import triton.language as tl

from fedblade.engines.layers._norm_kernels import NUMBERS, first_padding, over_splits


@triton.jit
def tap(filters, column, inside, number):
    """One number of every channel's filter."""
    return tl.load(filters + column * 9 + number, mask=inside, other=0.0).to(tl.float32)[None, :]


@triton.jit
def inputs_at(x, place, there, factor, shift, NORM: tl.constexpr, RELU: tl.constexpr):
    """The convolution's input at these addresses, 0 outside of the maps."""
    values = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    if NORM:
        values = values * factor[None, :] + shift[None, :]
        if RELU:
            values = tl.maximum(values, 0.0)
        values = tl.where(there, values, 0.0)
    return values


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    x, filters, y, facts, rows, units, height, width, out_height, out_width,
    NORM: tl.constexpr, RELU: tl.constexpr,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """One tile of outputs."""
    channels = units * ALIGN
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    sample = row // (out_height * out_width)
    up = (row // out_width) % out_height * 2 - 1
    left = row % out_width * 2 - 1
    factor = tl.zeros((CHANNELS,), tl.float32)
    shift = tl.zeros((CHANNELS,), tl.float32)
    if NORM:
        factor = tl.load(facts + 3 * channels + column, mask=inside, other=0.0)
        shift = tl.load(facts + 4 * channels + column, mask=inside, other=0.0)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            h, w = up + i, left + j
            ok = (row < rows) & (h >= 0) & (h < height) & (w >= 0) & (w < width)
            there = ok[:, None] & inside[None, :]
            place = ((sample * height + h) * width + w)[:, None].to(tl.int64) * channels + column[None, :]
            taps = tl.load(filters + column * 9 + i * 3 + j, mask=inside, other=0.0).to(tl.float32)
            total += inputs_at(x, place, there, factor, shift, NORM, RELU) * taps[None, :]
    place = row[:, None].to(tl.int64) * channels + column[None, :]
    tl.store(y + place, total.to(y.dtype.element_ty), mask=(row < rows)[:, None] & inside[None, :])


@triton.jit
def real_at(x, place, there, real):
    """Numbers at these addresses, 0 outside of the maps and for padding."""
    return tl.where(real, tl.load(x + place, mask=there, other=0.0).to(tl.float32), 0.0)


@triton.jit
def pixel(x, place, there, real, factor, shift, NORM: tl.constexpr, RELU: tl.constexpr):
    """A pixel as it is stored and as the convolution reads it."""
    raw = real_at(x, place, there, real)
    value = raw
    if NORM:
        value = raw * factor[None, :] + shift[None, :]
        if RELU:
            value = tl.maximum(value, 0.0)
        value = tl.where(there & real, value, 0.0)
    return raw, value


@triton.jit
def written(
    dx, place, gradient, raw, value, there, real, mean, inverse, plain, along, NORM: tl.constexpr, RELU: tl.constexpr
):
    """Write the gradient of a pixel, after the activation is undone, and add it to the sums of the normalisation."""
    if NORM:
        if RELU:
            gradient = tl.where(value > 0, gradient, 0.0)
        gradient = tl.where(there & real, gradient, 0.0)
        plain += gradient
        along += gradient * (raw - mean[None, :]) * inverse[None, :]
    tl.store(dx + place, gradient.to(dx.dtype.element_ty), mask=there)
    return plain, along


@triton.jit(do_not_specialize=NUMBERS)
def backward(
    x, dy, dx, sizes, filters, facts, parts, rows, units, height, width, out_height, out_width, per_client, per_split,
    NORM: tl.constexpr, RELU: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Gradient of the input at stride 2, and sums over a stretch of outputs: of the filters, with NORM of dy and dy·x̂.

    parts is [9, splits, channels], [11, …] with NORM. Output (h, w) belongs to the four inputs from (2h, 2w) on, which
    are read by it and by its neighbours to the right and below.
    """
    channels = units * ALIGN
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    split = tl.program_id(1)
    inside = column < channels
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
    limit = first_padding(sizes, column, inside, 1, per_client)
    zero = tl.zeros((ROWS, CHANNELS), tl.float32)
    s0, s1, s2, s3, s4, s5, s6, s7, s8, plain, along = zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero
    first = split * per_split
    last = tl.minimum(first + per_split, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        sample, h, w = row // (out_height * out_width), (row // out_width) % out_height, row % out_width
        here = (row < last)[:, None] & inside[None, :]
        real = sample[:, None] < limit[None, :]
        right, below = here & (w < out_width - 1)[:, None], here & (h < out_height - 1)[:, None]
        out = row[:, None].to(tl.int64) * channels + column[None, :]
        line = tl.cast(out_width * channels, tl.int64)
        a = real_at(dy, out, here, real)
        b = real_at(dy, out + channels, right, real)
        c = real_at(dy, out + line, below, real)
        d = real_at(dy, out + line + channels, right & below, real)
        place = ((sample * height + 2 * h) * width + 2 * w)[:, None].to(tl.int64) * channels + column[None, :]
        line = tl.cast(width * channels, tl.int64)
        right, below = here & (2 * w + 1 < width)[:, None], here & (2 * h + 1 < height)[:, None]
        raw, value = pixel(x, place, here, real, factor, shift, NORM, RELU)
        s4 += value * a
        plain, along = written(dx, place, a * f4, raw, value, here, real, mean, inverse, plain, along, NORM, RELU)
        raw, value = pixel(x, place + channels, right, real, factor, shift, NORM, RELU)
        s5 += value * a
        s3 += value * b
        plain, along = written(
            dx, place + channels, a * f5 + b * f3, raw, value, right, real, mean, inverse, plain, along, NORM, RELU
        )
        raw, value = pixel(x, place + line, below, real, factor, shift, NORM, RELU)
        s7 += value * a
        s1 += value * c
        plain, along = written(
            dx, place + line, a * f7 + c * f1, raw, value, below, real, mean, inverse, plain, along, NORM, RELU
        )
        raw, value = pixel(x, place + line + channels, right & below, real, factor, shift, NORM, RELU)
        s8 += value * a
        s6 += value * b
        s2 += value * c
        s0 += value * d
        plain, along = written(
            dx, place + line + channels, a * f8 + b * f6 + c * f2 + d * f0, raw, value, right & below, real,
            mean, inverse, plain, along, NORM, RELU,
        )  # fmt: skip
    step = tl.num_programs(1) * channels
    into = parts + split * channels + column
    store_sums(into, step, inside, s0, s1, s2, s3, s4, s5, s6, s7, s8)
    if NORM:
        tl.store(into + 9 * step, tl.sum(plain, 0), mask=inside)
        tl.store(into + 10 * step, tl.sum(along, 0), mask=inside)


@triton.jit
def store_sums(into, step, inside, s0, s1, s2, s3, s4, s5, s6, s7, s8):
    """Write the sums of the nine taps, `step` apart."""
    tl.store(into, tl.sum(s0, 0), mask=inside)
    tl.store(into + step, tl.sum(s1, 0), mask=inside)
    tl.store(into + 2 * step, tl.sum(s2, 0), mask=inside)
    tl.store(into + 3 * step, tl.sum(s3, 0), mask=inside)
    tl.store(into + 4 * step, tl.sum(s4, 0), mask=inside)
    tl.store(into + 5 * step, tl.sum(s5, 0), mask=inside)
    tl.store(into + 6 * step, tl.sum(s6, 0), mask=inside)
    tl.store(into + 7 * step, tl.sum(s7, 0), mask=inside)
    tl.store(into + 8 * step, tl.sum(s8, 0), mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def finish_filters(parts, dfilters, channels, splits, SPLITS: tl.constexpr, CHANNELS: tl.constexpr):
    """Gradients of one tap of the filters [channels, 9] from the sums of stretches."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    number = tl.program_id(1)
    inside = column < channels
    total = over_splits(parts, number, splits, channels, column, inside, SPLITS, CHANNELS)
    tl.store(dfilters + column * 9 + number, total.to(dfilters.dtype.element_ty), mask=inside)
