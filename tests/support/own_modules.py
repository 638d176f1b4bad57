"""Modules as users pass them: a classifier, partly frozen or not, for the small federation's vectors."""

import torch
from torch import nn
from torch.nn import functional

from support.small_federation import DIM, NUM_CLASSES

FROZEN = {f"body.module.0.{name}" for name in ("weight", "bias")} | {
    f"body.module.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
}
"""Names of what is frozen in `half_frozen`, as the network calls them."""


def classifier(seed=0):
    """Two blocks with BatchNorm, whose statistics are not those it starts with, and a last linear layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = nn.Sequential(
            nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, DIM), nn.BatchNorm1d(DIM), nn.ReLU(),
            nn.Linear(DIM, NUM_CLASSES),
        )  # fmt: skip
        with torch.no_grad():
            module[1].running_mean.normal_()
            module[1].running_var.uniform_(0.5, 2.0)
    return module


def half_frozen(seed=0):
    """The same with its first block frozen."""
    module = classifier(seed)
    for leaf in module[:2].parameters():
        leaf.requires_grad_(False)
    return module


class Constants(nn.Module):
    """The first block by hand: tensors that nobody could take for layers."""

    def __init__(self, linear, norm):
        super().__init__()
        self.tensors = {name: leaf.detach().clone() for name, leaf in linear.state_dict().items()}
        self.norm = {name: leaf.detach().clone() for name, leaf in norm.state_dict().items()}

    def forward(self, x):
        own, norm = ({n: leaf.to(x) for n, leaf in each.items()} for each in (self.tensors, self.norm))
        x = functional.linear(x, own["weight"], own["bias"])
        scale = norm["weight"] / torch.sqrt(norm["running_var"] + 1e-5)
        return (x - norm["running_mean"]) * scale + norm["bias"]


class Noisy(nn.Module):
    """A body that drops features at random while it trains."""

    dim = 16

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, inputs):
        return self.layers(inputs)
