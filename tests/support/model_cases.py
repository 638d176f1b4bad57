"""Every registered model with its size, and the plain layers the references are written with."""

import functools
from dataclasses import dataclass

import torch
from torch import nn

from fedblade.core.registry import models


@dataclass(frozen=True)
class Case:
    """A model, its width, the smallest inputs worth a forward pass, the sizes to accept, and its stages' widths."""

    name: str
    dim: int
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    widths: tuple[int, ...]

    def make(self) -> nn.Module:
        return models.get(self.name).make(self.shape)

    def inputs(self, batch: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        if self.name == "char_lstm":
            return torch.randint(80, (batch, *self.shape), generator=generator).to(dtype)
        return torch.randn(batch, *self.shape, generator=generator, dtype=torch.float64).to(dtype)


RESNET18 = (64, 64, 128, 256, 512)
NARROW = (16, 16, 32, 64)
EFFICIENT = (32, 16, 24, 40, 80, 112, 192, 320)
CASES = (
    Case("mobilenet_v2", 1280, (3, 16, 16), (32, 64), (32, 24, 32, 96, 1280)),
    Case("mobilenet_v1", 1024, (3, 16, 16), (32, 64), (32, 64, 128, 256, 512, 1024)),
    Case("resnet18", 512, (3, 16, 16), (32, 64), RESNET18),
    Case("resnet18_imagenet", 512, (3, 32, 32), (32, 64, 224), RESNET18),
    Case("resnet20", 64, (3, 16, 16), (32, 64), NARROW),
    Case("resnet32", 64, (3, 16, 16), (32, 64), NARROW),
    Case("resnet56", 64, (3, 16, 16), (32, 64), NARROW),
    Case("wrn56_4", 256, (3, 8, 8), (32, 64), (64, 64, 128, 256)),
    Case("densenet121", 1024, (3, 16, 16), (32, 64), (64, 256, 512, 1024, 1024)),
    Case("efficientnet_b0_small", 320, (3, 16, 16), (32, 64), EFFICIENT),
    Case("efficientnet_b0", 1280, (3, 32, 32), (32, 64, 200), (*EFFICIENT, 1280)),
    Case("vgg11", 512, (3, 32, 32), (32, 64), (64, 128, 256, 512, 512)),
    Case("alexnet_bn", 4096, (3, 63, 63), (64, 256), (64, 192, 384, 256, 256)),
    Case("cnn_femnist", 2048, (1, 28, 28), (28, 32, 64), (32, 64)),
    Case("char_lstm", 256, (80,), (), (8, 256)),
    Case("small_cnn", 128, (1, 8, 8), (8, 32, 64), (16, 32)),
    Case("mlp", 64, (1, 8, 8), (8, 32), ()),
)
IMAGE_CASES = tuple(case for case in CASES if case.name not in {"char_lstm", "mlp"})
POOLED_CASES = tuple(case for case in IMAGE_CASES if case.name not in {"small_cnn", "cnn_femnist"})


@functools.cache
def built(case: Case) -> nn.Module:
    """The case's model, made once."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return case.make()


def conv_bn(conv_norm, x):
    """Convolution and training-mode BatchNorm of a pair of modules, the statistics by hand."""
    conv, norm = conv_norm[0], conv_norm[1]
    x = nn.functional.conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding, groups=conv.groups)
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
    return (x - mean) / (var + norm.eps).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]


def randomised(name, shape, **knobs):
    """A float64 body whose normalisation weights and biases are no longer all ones and zeros."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = models.get(name).make(shape, **knobs).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for leaf in body.parameters():
            if leaf.dim() == 1:
                leaf.add_(torch.rand(leaf.shape, generator=generator, dtype=leaf.dtype) * 0.2)
    return body, torch.randn(3, *shape, generator=generator, dtype=torch.float64)
