"""Masked batch normalisation on a GPU, as kernels over rows [batch·pixels, channels] with channels last.

The first `sizes[client]` samples of a client are real; its other rows are padding and have no effect. Moments are sums
of x − s and (x − s)², where s is the channel's first value. It is near enough to the mean that nothing cancels, and the
same for all stretches of rows, so that their sums can be added. Kernels are not specialised on numbers, so that one
build serves all sizes. Kernels that read maps take the number of channels in units of ALIGN, which tells the compiler
how wide loads can be. `_norm_functions.py` calls the kernels.
"""

import triton
import triton.language as tl

NUMBERS = [
    "rows", "columns", "units", "channels", "pixels", "per_client", "per_split", "splits", "segment", "height", "width",
    "out_height", "out_width", "narrow_units", "wide_units", "narrow_step", "wide_step", "momentum", "eps",
]  # fmt: skip
"""Arguments that kernels are not specialised upon."""


@triton.jit
def first_padding(sizes, column, inside, pixels, per_client):
    """The first row of each channel that belongs to no real sample."""
    return tl.load(sizes + column // per_client, mask=inside, other=0) * pixels


@triton.jit(do_not_specialize=NUMBERS)
def moments(
    x, sizes, parts, rows, units, pixels, per_client, per_split,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Σ(x − s) and Σ(x − s)² of the real rows of a stretch; parts is [2, splits, channels]."""
    channels = units * ALIGN
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    split = tl.program_id(1)
    inside = column < channels
    origin = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
    padding = first_padding(sizes, column, inside, pixels, per_client)
    plain = tl.zeros((ROWS, CHANNELS), tl.float32)
    square = tl.zeros((ROWS, CHANNELS), tl.float32)
    first = split * per_split
    last = tl.minimum(first + per_split, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < last)[:, None] & inside[None, :]
        real = row[:, None] < padding[None, :]
        values = tl.load(x + row[:, None].to(tl.int64) * channels + column[None, :], mask=there, other=0.0)
        away = tl.where(real, values.to(tl.float32) - origin[None, :], 0.0)
        plain += away
        square += away * away
    place = split * channels + column
    tl.store(parts + place, tl.sum(plain, 0), mask=inside)
    tl.store(parts + tl.num_programs(1) * channels + place, tl.sum(square, 0), mask=inside)


@triton.jit
def over_splits(parts, number, splits, channels, column, inside, SPLITS: tl.constexpr, CHANNELS: tl.constexpr):
    """Entry `number` of parts [·, splits, channels], added up over the splits."""
    total = tl.zeros((SPLITS, CHANNELS), tl.float32)
    for start in range(0, splits, SPLITS):
        split = start + tl.arange(0, SPLITS)
        place = (number * splits + split)[:, None] * channels + column[None, :]
        total += tl.load(parts + place, mask=(split < splits)[:, None] & inside[None, :], other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=NUMBERS)
def finish_moments(
    x, sizes, parts, weight, bias, facts, running_mean, running_var, batches,
    channels, splits, pixels, per_client, eps, momentum,
    RUNNING: tl.constexpr, SPLITS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Facts [5, channels] (rows: count, mean, 1/deviation, factor, shift), and the running statistics in place."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    owner = column // per_client
    size = tl.load(sizes + owner, mask=inside, other=0)
    number = tl.maximum((size * pixels).to(tl.float32), 1.0)
    origin = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
    away = over_splits(parts, 0, splits, channels, column, inside, SPLITS, CHANNELS) / number
    square = over_splits(parts, 1, splits, channels, column, inside, SPLITS, CHANNELS) / number
    mean = origin + away
    var = tl.maximum(square - away * away, 0.0)
    inverse = 1.0 / tl.sqrt(var + eps)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) * inverse
    shift = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32) - mean * factor
    tl.store(facts + column, number, mask=inside)
    tl.store(facts + channels + column, mean, mask=inside)
    tl.store(facts + 2 * channels + column, inverse, mask=inside)
    tl.store(facts + 3 * channels + column, factor, mask=inside)
    tl.store(facts + 4 * channels + column, shift, mask=inside)
    if RUNNING:
        unbiased = var * (number / tl.maximum(number - 1.0, 1.0))
        follow(running_mean, column, inside, mean, momentum)
        follow(running_var, column, inside, unbiased, momentum)
        first = inside & (column % per_client == 0)
        tl.store(batches + owner, tl.load(batches + owner, mask=first, other=0) + 1, mask=first)


@triton.jit(do_not_specialize=NUMBERS)
def known_facts(weight, bias, mean, var, facts, channels, eps, CHANNELS: tl.constexpr):
    """Factor and shift of facts [5, channels] by running statistics."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    inverse = 1.0 / tl.sqrt(tl.load(var + column, mask=inside, other=1.0) + eps)
    factor = tl.load(weight + column, mask=inside, other=0.0) * inverse
    shift = tl.load(bias + column, mask=inside, other=0.0) - tl.load(mean + column, mask=inside, other=0.0) * factor
    tl.store(facts + 3 * channels + column, factor, mask=inside)
    tl.store(facts + 4 * channels + column, shift, mask=inside)


@triton.jit
def follow(running, column, inside, value, momentum):
    """Move running statistics towards those of a batch."""
    old = tl.load(running + column, mask=inside, other=0.0)
    tl.store(running + column, old * (1.0 - momentum) + value * momentum, mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def apply(
    x, y, facts, rows, units,
    RELU: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Y = x·factor + shift per channel, then ReLU if asked."""
    channels = units * ALIGN
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    place = row[:, None].to(tl.int64) * channels + column[None, :]
    factor = tl.load(facts + 3 * channels + column, mask=inside, other=0.0)
    shift = tl.load(facts + 4 * channels + column, mask=inside, other=0.0)
    values = tl.load(x + place, mask=there, other=0.0).to(tl.float32) * factor[None, :] + shift[None, :]
    if RELU:
        values = tl.maximum(values, 0.0)
    tl.store(y + place, values.to(y.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=NUMBERS)
def gradient_sums(
    x, dy, sizes, facts, parts, rows, units, pixels, per_client, per_split,
    RELU: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Σ dy and Σ dy·x̂ over the real rows of a stretch; parts is [2, splits, channels]."""
    channels = units * ALIGN
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    split = tl.program_id(1)
    inside = column < channels
    mean = tl.load(facts + channels + column, mask=inside, other=0.0)
    inverse = tl.load(facts + 2 * channels + column, mask=inside, other=0.0)
    factor = tl.load(facts + 3 * channels + column, mask=inside, other=0.0)
    shift = tl.load(facts + 4 * channels + column, mask=inside, other=0.0)
    padding = first_padding(sizes, column, inside, pixels, per_client)
    plain = tl.zeros((ROWS, CHANNELS), tl.float32)
    along = tl.zeros((ROWS, CHANNELS), tl.float32)
    first = split * per_split
    last = tl.minimum(first + per_split, rows)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row < last)[:, None] & inside[None, :]
        place = row[:, None].to(tl.int64) * channels + column[None, :]
        real = row[:, None] < padding[None, :]
        values = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
        up = tl.load(dy + place, mask=there, other=0.0).to(tl.float32)
        if RELU:
            real = real & (values * factor[None, :] + shift[None, :] > 0)
        plain += tl.where(real, up, 0.0)
        along += tl.where(real, up * (values - mean[None, :]) * inverse[None, :], 0.0)
    place = split * channels + column
    tl.store(parts + place, tl.sum(plain, 0), mask=inside)
    tl.store(parts + tl.num_programs(1) * channels + place, tl.sum(along, 0), mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def finish_gradients(
    parts, facts, totals, dbias, dweight, channels, splits, SPLITS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Gradients of bias and weight, and totals [2, channels]: the means of dy and dy·x̂."""
    column = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    number = tl.load(facts + column, mask=inside, other=1.0)
    plain = over_splits(parts, 0, splits, channels, column, inside, SPLITS, CHANNELS)
    along = over_splits(parts, 1, splits, channels, column, inside, SPLITS, CHANNELS)
    tl.store(dbias + column, plain.to(dbias.dtype.element_ty), mask=inside)
    tl.store(dweight + column, along.to(dweight.dtype.element_ty), mask=inside)
    tl.store(totals + column, plain / number, mask=inside)
    tl.store(totals + channels + column, along / number, mask=inside)


@triton.jit(do_not_specialize=NUMBERS)
def backward(
    x, dy, dx, sizes, facts, totals, rows, units, pixels, per_client,
    RELU: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Dx = factor·(dy − mean dy − x̂·mean(dy·x̂)) for real rows, 0 for padding; dx may be dy itself."""
    channels = units * ALIGN
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = column < channels
    there = (row < rows)[:, None] & inside[None, :]
    place = row[:, None].to(tl.int64) * channels + column[None, :]
    real = row[:, None] < first_padding(sizes, column, inside, pixels, per_client)[None, :]
    values = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    up = tl.load(dy + place, mask=there, other=0.0).to(tl.float32)
    factor = tl.load(facts + 3 * channels + column, mask=inside, other=0.0)
    if RELU:
        shift = tl.load(facts + 4 * channels + column, mask=inside, other=0.0)
        up = tl.where(values * factor[None, :] + shift[None, :] > 0, up, 0.0)
    mean = tl.load(facts + channels + column, mask=inside, other=0.0)
    inverse = tl.load(facts + 2 * channels + column, mask=inside, other=0.0)
    plain = tl.load(totals + column, mask=inside, other=0.0)
    along = tl.load(totals + channels + column, mask=inside, other=0.0)
    normal = (values - mean[None, :]) * inverse[None, :]
    gradient = factor[None, :] * (up - plain[None, :] - normal * along[None, :])
    tl.store(dx + place, tl.where(real, gradient, 0.0).to(dx.dtype.element_ty), mask=there)
