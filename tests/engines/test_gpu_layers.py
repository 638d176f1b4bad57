"""A body computed with the layers of a GPU against the layers of a CPU in float64.

Without a GPU, kernels are interpreted.

The body has every kind of layer that a GPU computes in another way: small patches of the data, 1×1 and depthwise
convolutions of both strides, and normalisation alone, with a ReLU, and before a depthwise convolution.
"""

import pytest
import torch
from torch import nn

from fedblade.engines.layers import StackedBody, _on_gpu
from fedblade.runs._device import float32_products
from support.gpu import KERNEL_DEVICE, NEEDS_KERNELS

pytestmark = NEEDS_KERNELS
CLIENTS, BATCH, REAL = 2, 4, (4, 2)
TOLERANCE = 2e-4


def convolution(into, out, kernel, *, stride=1, groups=1):
    return nn.Conv2d(into, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)


def body():
    """As in MobileNet: a stem, then 1×1 and depthwise convolutions, each normalised."""
    return nn.Sequential(
        convolution(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
        convolution(4, 8, 1), nn.BatchNorm2d(8), nn.ReLU(),
        convolution(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU(),
        convolution(8, 4, 1), nn.BatchNorm2d(4),
        convolution(4, 4, 3, groups=4, stride=2), nn.BatchNorm2d(4), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def exact_products():
    """TF32 would hide what is compared here."""
    with float32_products(tf32=False):
        yield


def drawn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def computed(*, device, dtype, real, training):
    """Features, gradients of parameters and inputs, and buffers after a pass; padding holds large numbers."""
    module = body()
    params = {
        f"body.{name}": (0.3 * drawn(CLIENTS, *leaf.shape, seed=place) + (leaf.dim() == 1))
        .to(device, dtype)
        .requires_grad_()
        for place, (name, leaf) in enumerate(module.named_parameters())
    }
    buffers = {
        f"body.{name}": leaf.expand(CLIENTS, *leaf.shape)
        .clone()
        .to(device, dtype if leaf.is_floating_point() else leaf.dtype)
        for name, leaf in module.named_buffers()
    }
    mask = torch.tensor([[float(sample < number) for sample in range(BATCH)] for number in real]).to(device, dtype)
    there = mask[:, :, None, None, None] > 0
    inputs = drawn(CLIENTS, BATCH, 3, 6, 5, seed=50).to(device, dtype)
    inputs = torch.where(there, inputs, 1e3).requires_grad_()
    padded = None if min(real) == BATCH else mask
    features, _ = StackedBody(module, ())(params, buffers, inputs, padded, training=training, tap="none")
    up = drawn(*features.shape, seed=51).to(device, dtype) * mask[:, :, None]
    found = {"features": features * mask[:, :, None], **buffers}
    if training:
        gradients = torch.autograd.grad(features, list(params.values()), up)
        found |= {f"gradient of {name}": leaf for name, leaf in zip(params, gradients, strict=True)}
    return {name: leaf.detach().double().cpu() for name, leaf in found.items()}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("real", [REAL, (BATCH, BATCH)], ids=["padded", "full"])
def test_a_body_is_computed_as_on_a_cpu(real, training, monkeypatch):
    expected = computed(device="cpu", dtype=torch.float64, real=real, training=training)
    monkeypatch.setattr(_on_gpu, "is_on_gpu", lambda _: True)
    with torch.set_grad_enabled(training):
        found = computed(device=KERNEL_DEVICE, dtype=torch.float32, real=real, training=training)
    for name, wanted in expected.items():
        gap = (found[name] - wanted).norm() / (1e-3 + wanted.norm())
        assert gap <= TOLERANCE, f"{name} differs by {gap:.1e}"


def test_kernels_were_called(monkeypatch):
    """Else the test above compared the CPU's layers with themselves."""
    from fedblade.engines.layers import _depthwise, _norm_functions

    called = set()

    def watch(module, name):
        inner = getattr(module, name)

        def watched(*args, **named):
            called.add(name)
            return inner(*args, **named)

        monkeypatch.setattr(module, name, watched)

    for module, name in ((_norm_functions, "facts_of"), (_depthwise, "_forward"), (_depthwise, "_backward")):
        watch(module, name)
    monkeypatch.setattr(_on_gpu, "is_on_gpu", lambda _: True)
    computed(device=KERNEL_DEVICE, dtype=torch.float32, real=REAL, training=True)
    assert called == {"facts_of", "_forward", "_backward"}
