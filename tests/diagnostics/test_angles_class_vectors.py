"""Class vectors of every registered head are those it is written with."""

from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads
from fedblade.core.streams import Streams
from fedblade.core.tree import tree_map
from fedblade.core.views import Head, HeadOutput, HeadTensors
from fedblade.diagnostics import class_vectors
from fedblade.heads import EtfDirectHead, EtfProjectorHead, LinearHead
from support.trained_clients import CLASSES, DIM, draw, moved

OTHERS = [
    LinearHead(bias=False),
    LinearHead(normalize=True),
    EtfDirectHead(normalize=True, length=100.0),
    EtfProjectorHead(proj_dim=DIM),
    EtfProjectorHead(proj_dim=DIM + CLASSES),
    EtfProjectorHead(projector=False),
]


def tensors(head, dim=DIM):
    made = head.init(dim, CLASSES, Streams(0))
    return moved(tree_map(torch.Tensor.double, made.params), 3), tree_map(torch.Tensor.double, made.fixed)


def stored(params, fixed):
    everything = params | fixed
    return everything["etf"].T if "etf" in everything else everything["head.weight"]


@pytest.mark.parametrize("head", [*(heads.get(name).make() for name in heads.names()), *OTHERS], ids=repr)
@pytest.mark.parametrize("dim", [DIM, CLASSES])
def test_vectors_are_those_stored(head, dim):
    params, fixed = tensors(head, dim)
    body = {"body.weight": draw(3, 3)}
    found = class_vectors(head, params | body, fixed)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, stored(params, fixed), rtol=1e-12, atol=1e-12)


def test_a_large_bias_costs_no_digits_in_single_precision():
    params, fixed = tensors(LinearHead())
    params = {"head.weight": params["head.weight"].float(), "head.bias": torch.full((CLASSES,), 1e5)}
    torch.testing.assert_close(
        class_vectors(LinearHead(), params, fixed), params["head.weight"].double(), atol=1e-10, rtol=0
    )


@pytest.mark.parametrize("head", [LinearHead(), EtfProjectorHead(proj_dim=7)])
def test_many_heads_at_once(head):
    params, fixed = tensors(head)
    stacked = {name: torch.stack((leaf, 2 * leaf)) for name, leaf in params.items()}
    found = torch.func.vmap(lambda mine: class_vectors(head, mine, fixed))(stacked)
    for place in range(2):
        alone = class_vectors(head, {name: leaf[place] for name, leaf in stacked.items()}, fixed)
        torch.testing.assert_close(found[place], alone)


@dataclass(frozen=True)
class Hidden(Head):
    """A projection whose logits are all that is known of the class vectors."""

    def init(self, dim, num_classes, streams):
        return HeadTensors({"projector.weight": torch.ones(4, dim), "head.weight": torch.ones(num_classes, 4)}, {})

    def project(self, params, features):
        return features @ params["projector.weight"].T

    def __call__(self, params, fixed, features):
        projected = self.project(params, features)
        return HeadOutput(functional.linear(projected, params["head.weight"]), projected)


@dataclass(frozen=True)
class Sized(Head):
    """A head none of whose tensors is as wide as the features."""

    def init(self, dim, num_classes, streams):
        return HeadTensors({"head.weight": torch.ones(num_classes, dim - 1)}, {})

    def __call__(self, params, fixed, features):
        return HeadOutput(features[:, 1:] @ params["head.weight"].T, features)


@pytest.mark.parametrize(("head", "message"), [(Hidden(), "a method raw_logits"), (Sized(), "no tensor as wide")])
def test_heads_whose_vectors_cannot_be_found(head, message):
    with pytest.raises(Misconfigured, match=message):
        class_vectors(head, *tensors(head))
