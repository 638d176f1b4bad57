"""Every rule for a layer against the plain layer, client by client: values, gradients and buffers."""

import copy
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from fedblade.core.errors import Unsupported
from fedblade.core.frozen import FrozenNorm
from fedblade.engines.layers import RULES, Activation, Shared, StackedBody
from fedblade.engines.layers._batch_norm import _MaskedNorm
from fedblade.engines.layers._pointwise import pointwise
from support.for_every import for_every

CLIENTS, BATCH = 3, 4
SIZES = (4, 2, 3)
"""Real samples of each client where some are padding."""
TOLERANCE = 1e-9
TRAINING = (True, False)


def close(found, expected):
    assert found.shape == expected.shape
    scale = TOLERANCE * (1 + expected.detach().abs())
    assert ((found - expected).abs() <= scale).all(), f"differs by {(found - expected).abs().max():.1e}"


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensors_of(module, seed=1):
    """Parameters and buffers [clients, …] in which no two clients agree; frozen parameters are among the buffers."""
    trained = [(name, leaf) for name, leaf in module.named_parameters() if leaf.requires_grad]
    frozen = [(name, leaf.detach()) for name, leaf in module.named_parameters() if not leaf.requires_grad]
    named = enumerate(trained, start=100 * seed)
    params = {name: 0.5 * drawn(CLIENTS, *leaf.shape, seed=place) for place, (name, leaf) in named}
    buffers = {n: leaf.expand(CLIENTS, *leaf.shape).clone() for n, leaf in (*module.named_buffers(), *frozen)}
    for leaf in buffers.values():
        if leaf.is_floating_point():
            leaf += 0.2 * drawn(*leaf.shape, seed=seed + 1).abs()
    return {n: leaf.detach().requires_grad_() for n, leaf in params.items()}, buffers


@dataclass(frozen=True)
class Case:
    """A layer and the shape of one sample."""

    module: nn.Module
    shape: tuple[int, ...]
    indices: int = 0
    """Inputs are numbers below this, if it is not 0."""

    def inputs(self):
        if self.indices:
            generator = torch.Generator().manual_seed(7)
            return torch.randint(self.indices, (CLIENTS, BATCH, *self.shape), generator=generator)
        return drawn(CLIENTS, BATCH, *self.shape, seed=7)


def no_affine_statistics():
    return nn.BatchNorm2d(6, affine=False, track_running_stats=False)


CASES = {
    "conv": Case(nn.Conv2d(6, 4, 3, padding=1), (6, 5, 7)),
    "conv_no_bias": Case(nn.Conv2d(6, 4, 3, bias=False), (6, 5, 7)),
    "conv_strided": Case(nn.Conv2d(6, 4, 3, stride=(2, 1), padding=(0, 2)), (6, 5, 7)),
    "conv_dilated": Case(nn.Conv2d(6, 4, 3, dilation=2, padding=2), (6, 5, 7)),
    "conv_oblong": Case(nn.Conv2d(6, 4, (1, 3)), (6, 5, 7)),
    "conv_same": Case(nn.Conv2d(6, 4, (3, 5), padding="same"), (6, 5, 7)),
    "conv_valid": Case(nn.Conv2d(6, 4, 2, padding="valid"), (6, 5, 7)),
    "conv_grouped": Case(nn.Conv2d(6, 4, 3, groups=2), (6, 5, 7)),
    "conv_depthwise": Case(nn.Conv2d(6, 6, 3, padding=1, groups=6), (6, 5, 7)),
    "conv_depthwise_twice": Case(nn.Conv2d(6, 12, 3, groups=6, stride=2), (6, 5, 7)),
    "conv_pointwise": Case(nn.Conv2d(6, 4, 1), (6, 5, 7)),
    "conv_pointwise_strided": Case(nn.Conv2d(6, 4, 1, stride=2, bias=False), (6, 5, 7)),
    "conv_reflect": Case(nn.Conv2d(6, 4, 3, padding=(1, 2), padding_mode="reflect"), (6, 5, 7)),
    "conv_circular": Case(nn.Conv2d(6, 4, 3, padding=1, padding_mode="circular"), (6, 5, 7)),
    "conv_replicate": Case(nn.Conv2d(6, 4, 3, padding="same", padding_mode="replicate"), (6, 5, 7)),
    "linear": Case(nn.Linear(6, 5), (6,)),
    "linear_no_bias": Case(nn.Linear(6, 5, bias=False), (6,)),
    "linear_over_steps": Case(nn.Linear(6, 5), (3, 2, 6)),
    "batch_norm_1d": Case(nn.BatchNorm1d(6), (6,)),
    "batch_norm_1d_of_steps": Case(nn.BatchNorm1d(6), (6, 5)),
    "batch_norm_2d": Case(nn.BatchNorm2d(6, momentum=0.3, eps=1e-3), (6, 3, 2)),
    "batch_norm_no_affine": Case(nn.BatchNorm2d(6, affine=False), (6, 3, 2)),
    "batch_norm_no_statistics": Case(no_affine_statistics(), (6, 3, 2)),
    "frozen_norm": Case(FrozenNorm(nn.BatchNorm2d(6, eps=1e-3)), (6, 3, 2)),
    "frozen_norm_no_affine": Case(FrozenNorm(nn.BatchNorm1d(6, affine=False)), (6,)),
    "group_norm": Case(nn.GroupNorm(3, 6), (6, 3, 2)),
    "group_norm_flat": Case(nn.GroupNorm(2, 6), (6,)),
    "group_norm_of_steps": Case(nn.GroupNorm(2, 6), (6, 5)),
    "group_norm_no_affine": Case(nn.GroupNorm(1, 6, affine=False), (6, 3, 2)),
    "layer_norm": Case(nn.LayerNorm(6), (4, 6)),
    "layer_norm_of_maps": Case(nn.LayerNorm((6, 3, 2)), (6, 3, 2)),
    "layer_norm_no_bias": Case(nn.LayerNorm(6, bias=False), (6,)),
    "layer_norm_no_affine": Case(nn.LayerNorm(6, elementwise_affine=False), (6,)),
    "embedding": Case(nn.Embedding(9, 5), (6,), indices=9),
    "lstm": Case(nn.LSTM(5, 4, batch_first=True), (6, 5)),
    "lstm_of_two_layers": Case(nn.LSTM(5, 4, num_layers=2, batch_first=True), (6, 5)),
    "lstm_no_bias": Case(nn.LSTM(5, 4, bias=False, batch_first=True), (6, 5)),
    "max_pool": Case(nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), (6, 5, 7)),
    "mean_pool": Case(nn.AvgPool2d(2, count_include_pad=False, padding=1), (6, 5, 7)),
    "adaptive_max": Case(nn.AdaptiveMaxPool2d((2, 3)), (6, 5, 7)),
    "adaptive_mean": Case(nn.AdaptiveAvgPool2d(1), (6, 5, 7)),
    "adaptive_mean_of_equal_windows": Case(nn.AdaptiveAvgPool2d((2, 3)), (6, 4, 6)),
    "adaptive_mean_of_unequal_windows": Case(nn.AdaptiveAvgPool2d((2, 3)), (6, 5, 7)),
    "adaptive_mean_of_rows": Case(nn.AdaptiveAvgPool2d((None, 1)), (6, 5, 7)),
    "relu": Case(nn.ReLU(), (6, 3, 2)),
    "relu6": Case(nn.ReLU6(), (6, 3, 2)),
    "leaky_relu": Case(nn.LeakyReLU(0.3), (6, 3, 2)),
    "elu": Case(nn.ELU(), (6,)),
    "gelu": Case(nn.GELU(), (6, 3, 2)),
    "silu": Case(nn.SiLU(), (6, 3, 2)),
    "hardswish": Case(nn.Hardswish(), (6, 3, 2)),
    "sigmoid": Case(nn.Sigmoid(), (6, 3, 2)),
    "tanh": Case(nn.Tanh(), (6, 3, 2)),
    "softplus": Case(nn.Softplus(), (6, 3, 2)),
    "identity": Case(nn.Identity(), (6, 3, 2)),
}
MIXES_SAMPLES = {name for name, case in CASES.items() if isinstance(case.module, nn.modules.batchnorm._BatchNorm)}


def test_every_rule_has_a_case():
    assert {type(case.module) for case in CASES.values()} == set(RULES)


def split(outputs):
    """A rule's output [clients, batch, …], that of several as a list, states of an LSTM with the batch in front."""
    if isinstance(outputs, Activation):
        return [outputs.split(CLIENTS)]
    values, (hidden, cells) = outputs
    return [values.split(CLIENTS), *(each.split(CLIENTS).transpose(1, 2) for each in (hidden, cells))]


def alone(outputs):
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    values, (hidden, cells) = outputs
    return [values, hidden.transpose(0, 1), cells.transpose(0, 1)]


def pulls(values):
    return [drawn(*value.shape, seed=20 + i) for i, value in enumerate(values)]


def run(case, inputs, *, mask=None, training=True, folded=False, relu=False):
    """A rule's outputs [clients, batch, …], gradients of inputs and tensors, and buffers."""
    module = copy.deepcopy(case.module).double().train(training)
    params, buffers = tensors_of(module)
    inputs = inputs.clone().requires_grad_(inputs.is_floating_point())
    lane = Activation(Activation(inputs).fold(), folded=True) if folded else Activation(inputs)
    shared = Shared(CLIENTS, mask, training, relu)
    outputs = split(RULES[type(module)](module, {**params, **buffers}, lane, shared))
    real = torch.ones(CLIENTS, BATCH, dtype=torch.bool) if mask is None else mask
    ups = [torch.where(_like(real, up), up, 0.0) for up in pulls(outputs)]
    leaves = [*params.values(), *([inputs] if inputs.requires_grad else [])]
    reached = [o for o in outputs if o.requires_grad]
    grads = torch.autograd.grad(reached, leaves, ups[: len(reached)]) if leaves else []
    slopes = dict(zip([*params, *(["inputs"] if inputs.requires_grad else [])], grads, strict=True))
    return [each.detach() for each in outputs], slopes, buffers


def _like(mask, values):
    return mask.reshape(*mask.shape, *(1,) * (values.dim() - 2))


def run_one(case, client, inputs, size, *, training=True, relu=False):
    """The plain layer with one client's tensors on its real samples."""
    module = copy.deepcopy(case.module).double().train(training)
    params, buffers = tensors_of(module)
    mine = {n: leaf[client].detach().requires_grad_() for n, leaf in params.items()}
    own = {n: leaf[client].clone() for n, leaf in buffers.items()}
    x = inputs[client, :size].clone().requires_grad_(inputs.is_floating_point())
    outputs = alone(functional_call(module, {**mine, **own}, (x,)))
    outputs = [each.relu() for each in outputs] if relu else outputs
    full = [drawn(CLIENTS, BATCH, *o.shape[1:], seed=20 + i)[client, :size] for i, o in enumerate(outputs)]
    leaves = [*mine.values(), *([x] if x.requires_grad else [])]
    grads = torch.autograd.grad(outputs, leaves, full) if leaves else []
    slopes = dict(zip([*mine, *(["inputs"] if x.requires_grad else [])], grads, strict=True))
    return [each.detach() for each in outputs], slopes, own


def compare(case, *, padding=None, training=True, folded=False, relu=False):
    """The rule against the plain layer for every client; `padding` is what the samples that are not real hold."""
    inputs, mask, sizes = case.inputs(), None, (BATCH,) * CLIENTS
    if padding is not None:
        sizes = SIZES
        mask = torch.arange(BATCH) < torch.tensor(sizes)[:, None]
        inputs = torch.where(_like(mask, inputs), inputs, torch.tensor(padding, dtype=inputs.dtype))
    outputs, slopes, buffers = run(case, inputs, mask=mask, training=training, folded=folded, relu=relu)
    for client, size in enumerate(sizes):
        one, own_slopes, own_buffers = run_one(case, client, inputs, size, training=training, relu=relu)
        for found, expected in zip(outputs, one, strict=True):
            close(found[client, :size], expected)
        assert slopes.keys() == own_slopes.keys()
        for name, expected in own_slopes.items():
            found = slopes[name][client]
            if name == "inputs":
                assert not found[size:].any(), "padding has a gradient"
                found = found[:size]
            close(found, expected)
        assert buffers.keys() == own_buffers.keys()
        for name, expected in own_buffers.items():
            close(buffers[name][client].double(), expected.double())


@for_every(product(CASES, TRAINING))
def test_rules_agree_with_the_plain_layer(name, training):
    compare(CASES[name], training=training)


@for_every(product([name for name, case in CASES.items() if len(case.shape) == 3], TRAINING))
def test_rules_agree_on_folded_maps(name, training):
    compare(CASES[name], training=training, folded=True)


@for_every(product(CASES, TRAINING))
def test_padding_changes_nothing(name, training):
    compare(CASES[name], training=training, padding=3 if CASES[name].indices else 1e6)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("name", sorted(MIXES_SAMPLES))
def test_padding_of_a_normalised_batch_may_be_anything(name, folded):
    """The layers that look at a whole batch take no number from a sample that is not real, NaN included."""
    if not folded or len(CASES[name].shape) == 3:
        compare(CASES[name], padding=float("nan"), folded=folded)


def test_statistics_of_a_batch_need_the_mask():
    """Otherwise the tests above would not see that it is there."""
    inputs = CASES["batch_norm_2d"].inputs()
    mask = torch.arange(BATCH) < torch.tensor(SIZES)[:, None]
    masked, plain = (run(CASES["batch_norm_2d"], inputs, mask=m)[2]["running_mean"] for m in (mask, None))
    assert (masked[0] - plain[0]).abs().max() < 1e-12
    assert (masked[1:] - plain[1:]).abs().min() > 1e-6


@pytest.mark.parametrize("padding", [None, float("nan")])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["batch_norm_2d", "batch_norm_no_affine", "batch_norm_no_statistics"])
def test_a_fused_relu_is_the_relu_that_follows(name, training, padding):
    if padding is None or training:
        compare(CASES[name], training=training, padding=padding, relu=True, folded=True)


@pytest.mark.parametrize("padding", [None, 1e6])
@pytest.mark.parametrize("name", ["max_pool", "adaptive_max"])
def test_a_pooling_layer_may_do_the_relu(name, padding):
    compare(CASES[name], padding=padding, relu=True, folded=True)


@pytest.mark.parametrize("far", [0.0, 1e3])
def test_masked_statistics_keep_their_digits_far_from_zero(far):
    """In single precision: sums over padding of another kind than the samples would cancel."""
    case = CASES["batch_norm_2d"]
    wide = case.inputs() + far
    mask = torch.arange(BATCH) < torch.tensor(SIZES)[:, None]
    module = nn.BatchNorm2d(6)
    params, buffers = tensors_of(module)
    own = {n: leaf.detach().float() for n, leaf in params.items()} | {
        n: leaf.float() if leaf.is_floating_point() else leaf for n, leaf in buffers.items()
    }
    inputs = torch.where(_like(mask, wide), wide, 0.0).float()
    found = RULES[nn.BatchNorm2d](module, own, Activation(inputs), Shared(CLIENTS, mask, training=True)).split(CLIENTS)
    for client, size in enumerate(SIZES):
        mine = {n: leaf[client].double() for n, leaf in own.items() if n in params}
        x = inputs[client, :size].double()
        expected = functional.batch_norm(x, None, None, mine["weight"], mine["bias"], training=True)
        # The inputs themselves have so many digits left above their spread.
        assert (found[client, :size] - expected).abs().max() < 1e-5 * (1 + far / 10)


def test_padding_costs_no_digits():
    """Half a batch of padding: variances would lose two of seven digits if padding were added up with the mean."""
    torch.manual_seed(0)
    maps = torch.randn(64, 8, 8, 8).contiguous(memory_format=torch.channels_last)
    mask = torch.arange(64)[None] < torch.tensor([[30], [64]])
    exact, mean, var = _MaskedNorm.apply(maps.double(), mask, None, None, 1e-5)
    found, found_mean, found_var = _MaskedNorm.apply(maps, mask, None, None, 1e-5)
    assert (found - exact).abs().max() < 2e-6
    assert (found_mean - mean).abs().max() < 1e-6
    assert (found_var / var - 1).abs().max() < 1e-6


def test_reduced_precision_is_widened_for_masked_statistics():
    case = CASES["batch_norm_2d"]
    mask = torch.arange(BATCH) < torch.tensor(SIZES)[:, None]
    params, buffers = tensors_of(nn.BatchNorm2d(6))
    tensors = {n: leaf.float() for n, leaf in (params | buffers).items()}
    tensors = {n: leaf.detach() for n, leaf in tensors.items()}
    inputs = case.inputs().bfloat16()
    found, wide = (
        RULES[nn.BatchNorm2d](
            nn.BatchNorm2d(6),
            {n: t.clone() for n, t in tensors.items()},
            Activation(x),
            Shared(CLIENTS, mask, training=True),
        )
        for x in (inputs, inputs.float())
    )
    assert found.value.dtype == torch.bfloat16
    assert torch.equal(found.value, wide.value.bfloat16())


def test_the_gradient_of_a_linear_layer_lies_in_memory_as_its_weight():
    params, _ = tensors_of(nn.Linear(6, 5))
    outputs = RULES[nn.Linear](
        nn.Linear(6, 5), params, Activation(drawn(CLIENTS, BATCH, 6)), Shared(CLIENTS, None, True)
    )
    (slope,) = torch.autograd.grad(outputs.value.square().sum(), [params["weight"]])
    assert slope.stride() == params["weight"].stride()


def test_a_client_without_a_real_sample_spoils_nobody():
    inputs = CASES["batch_norm_2d"].inputs()
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.bool)
    outputs, slopes, buffers = run(CASES["batch_norm_2d"], inputs, mask=mask)
    for client, size in ((0, 3), (2, 2)):
        one, own_slopes, own_buffers = run_one(CASES["batch_norm_2d"], client, inputs, size)
        close(outputs[0][client, :size], one[0])
        close(slopes["weight"][client], own_slopes["weight"])
        close(buffers["running_var"][client], own_buffers["running_var"])


def test_one_value_per_channel_is_refused_as_the_plain_layer_refuses_it():
    lane = Activation(drawn(CLIENTS, 1, 6))
    module = nn.BatchNorm1d(6).double()
    params, buffers = tensors_of(module)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        RULES[nn.BatchNorm1d](module, {**params, **buffers}, lane, Shared(CLIENTS, None, training=True))


@pytest.mark.parametrize("shape", [(2, 3 * 4, 5, 7), (1, 3, 1, 1), (3, 6, 2, 1)])
def test_products_of_pixels_are_the_convolution(shape):
    clients, channels = 3, shape[1] // 3
    maps, weight = drawn(*shape, seed=1), drawn(clients, 5, channels, seed=2)
    expected = functional.conv2d(maps, weight.flatten(0, 1)[..., None, None], groups=clients)
    close(pointwise(maps, weight), expected)
    found = pointwise(maps.contiguous(memory_format=torch.channels_last), weight)
    close(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_products_of_pixels_have_the_right_gradient():
    maps, weight = drawn(2, 6, 2, 3, seed=1).requires_grad_(), drawn(3, 4, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(pointwise, (maps, weight))
    assert torch.autograd.gradcheck(lambda w: pointwise(maps.detach(), w), (weight,))
    assert torch.autograd.gradcheck(lambda x: pointwise(x, weight.detach()), (maps,))


@pytest.mark.parametrize("channels", [1, 3])
def test_folded_maps_and_their_gradients_have_channels_last(channels):
    values = drawn(CLIENTS, BATCH, channels, 4, 5).requires_grad_()
    folded = Activation(values).fold()
    assert folded.is_contiguous(memory_format=torch.channels_last)
    pulled = folded.detach().requires_grad_()
    Activation(pulled, folded=True).flat(CLIENTS).square().sum().backward()
    assert pulled.grad.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(Activation(folded, folded=True).flat(CLIENTS), values.flatten(2))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3), (2, 3, 4, 5)])
def test_folding_keeps_what_is_there(shape):
    values = drawn(CLIENTS, *shape)
    folded = Activation(values).fold()
    assert folded.shape == (shape[0], CLIENTS * shape[1], *shape[2:])
    assert torch.equal(Activation(folded, folded=True).split(CLIENTS), values)
    assert torch.equal(folded[:, shape[1] : 2 * shape[1]], values[1])


class Own(nn.Module):
    """A user's layer with a parameter, a buffer and a shape in its code."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.register_buffer("shift", torch.arange(6.0))

    def forward(self, x):
        return (x * self.factor + self.shift).view(x.size(0), x.shape[1] // 2, 2).amax(-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.product = nn.Bilinear(6, 6, 4)

    def forward(self, x):
        return self.product(x, torch.tanh(x))


class Positions(nn.Module):
    """A table looked up at numbers that the code makes, and a second state for an LSTM's cell."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 6)
        self.cell = nn.LSTMCell(6, 4)

    def forward(self, x):
        return self.cell((x + self.table(torch.arange(3))).mean(1))[0]


class Instances(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(6, affine=True)
        self.slope = nn.PReLU(6)

    def forward(self, x):
        return self.slope(self.norm(x)).flatten(1)


class Recurrent(nn.Module):
    """A recurrent layer, and an LSTM that begins from a state."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 4, batch_first=True)
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        values, last = self.gru(x)
        _, (hidden, cell) = self.lstm(values, (last, last.tanh()))
        return torch.cat([hidden[0], cell[0]], 1)


class Bare(nn.Module):
    """Functions, methods and operators alone."""

    def forward(self, x):
        size = x.shape
        first, second = x.chunk(2, dim=-1)
        mixed = torch.einsum("bij,bkj->bik", first, second).reshape(size[0], size[1] * size[1])
        attended = functional.scaled_dot_product_attention(first, second, second).flatten(1)
        return torch.cat([mixed, attended, x.transpose(1, 2)[:, :, -1], x.view(x.size(0), -1).mean(1, keepdim=True)], 1)


UNKNOWN = {
    "own": (Own, (6,)),
    "attention": (Attention, (3, 6)),
    "pair": (Pair, (6,)),
    "positions": (Positions, (3, 6)),
    "instances": (Instances, (6, 2, 3)),
    "recurrent": (Recurrent, (3, 6)),
    "nothing_of_its_own": (Bare, (3, 6)),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", UNKNOWN)
def test_modules_without_a_rule_run_for_each_client(name, training):
    make, shape = UNKNOWN[name]
    body = make().double()
    stacked = StackedBody(body, ())
    params, buffers = ({f"body.{n}": leaf for n, leaf in tree.items()} for tree in tensors_of(body))
    inputs = drawn(CLIENTS, BATCH, *shape, seed=3).requires_grad_()
    features, _ = stacked(params, buffers, inputs, None, training=training, tap="none")
    up = drawn(*features.shape, seed=4)
    grads = torch.autograd.grad(features, [*params.values(), inputs], up)
    body.train(training)
    for client in range(CLIENTS):
        mine = {n: leaf[client].detach().requires_grad_() for n, leaf in params.items()}
        own = {n: leaf[client] for n, leaf in buffers.items()}
        x = inputs[client].detach().requires_grad_()
        expected = functional_call(body, {n.removeprefix("body."): leaf for n, leaf in {**mine, **own}.items()}, (x,))
        close(features[client], expected)
        for found, wanted in zip(grads, torch.autograd.grad(expected, [*mine.values(), x], up[client]), strict=True):
            close(found[client], wanted)


class Draws(nn.Module):
    def forward(self, x):
        return functional.dropout(x, 0.5, self.training)


class DrawsNoise(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class DrawsOnce(nn.Module):
    def forward(self, x):
        return x + torch.rand(6)


class ByMode(nn.Module):
    def forward(self, x):
        return 2 * x if self.training else x


class OwnNorm(nn.BatchNorm1d):
    pass


REFUSED = {
    "dropout": (nn.Dropout(0.5), "random draws"),
    "dropout_of_maps": (nn.Dropout2d(0.5), "random draws"),
    "dropout_called": (Draws(), "draw|something else"),
    "noise": (DrawsNoise(), "rand_like"),
    "noise_made_apart": (DrawsOnce(), "or draws"),
    "another_in_training": (ByMode(), "something else in training"),
    "cumulative_statistics": (nn.BatchNorm1d(6, momentum=None), "cumulative means"),
    "own_batch_norm": (OwnNorm(6), "cannot be traced|padding"),
    "batch_norm_3d": (nn.BatchNorm3d(6), "BatchNorm3d.*padding"),
    "instance_statistics": (nn.InstanceNorm2d(6, track_running_stats=True), "padding"),
    "bidirectional": (nn.LSTM(6, 4, batch_first=True, bidirectional=True), "bidirectional"),
    "projected": (nn.LSTM(6, 4, batch_first=True, proj_size=2), "projected"),
    "steps_first": (nn.LSTM(6, 4), "batch_first"),
    "lstm_dropout": (nn.LSTM(6, 4, 2, batch_first=True, dropout=0.1), "draws|dropout"),
    "padding_idx": (nn.Embedding(6, 4, padding_idx=0), "padding_idx"),
    "max_norm": (nn.Embedding(6, 4, max_norm=1.0), "max_norm"),
    "attention_dropout": (nn.MultiheadAttention(6, 2, dropout=0.1), "draws"),
    "encoder": (nn.TransformerEncoderLayer(6, 2, 8), "draws"),
}


class Around(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_apart_is_refused_before_training(name):
    layer, reason = REFUSED[name]
    with pytest.raises(Unsupported, match=reason):
        StackedBody(Around(layer), ())


@pytest.mark.parametrize("layer", [nn.Dropout(0.0), nn.BatchNorm1d(6, affine=False)], ids=["dropout", "batch_norm"])
def test_the_same_layers_without_it_are_taken(layer):
    body = Around(layer).double()
    params, buffers = ({f"body.{n}": leaf for n, leaf in tree.items()} for tree in tensors_of(body))
    inputs = drawn(CLIENTS, BATCH, 6)
    features, _ = StackedBody(body, ())(params, buffers, inputs, None, training=True, tap="none")
    normal = (inputs - inputs.mean(1, keepdim=True)) / (inputs.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    close(features, normal if isinstance(layer, nn.BatchNorm1d) else inputs)
