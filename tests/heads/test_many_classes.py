"""Simplex ETFs: what they are up to 1,000 classes, and their cheap forms for more."""

import math

import numpy as np
import pytest
import torch

from fedblade.core.streams import Streams
from fedblade.heads import EtfProjectorHead, class_vectors, cosine, own_cosines, simplex_etf

MANY = 1001


def drawn(dim, classes, seed):
    """V as it is up to 1,000 classes, for dim of at least classes."""
    q, r = np.linalg.qr(Streams(seed).numpy("etf").standard_normal((dim, classes)))
    centred = np.eye(classes) - 1.0 / classes
    return torch.from_numpy(math.sqrt(classes / (classes - 1)) * (q * np.sign(np.diag(r)) @ centred)).float()


STORED = {
    (10, 10, 1): (-0.527877, 0.025133, 1.1079429),
    (512, 100, 3): (0.07493, -0.027141, -0.0582520),
    (1000, 1000, 2): (0.027932, -0.014709, 0.0642163),
}
"""By dim, classes and seed: the first two entries and the sum of cubes."""


@pytest.mark.parametrize(("dim", "classes", "seed"), STORED)
def test_up_to_a_thousand_classes_the_frame_is_what_it_was(dim, classes, seed):
    V = simplex_etf(dim, classes, seed)
    assert torch.equal(V, drawn(dim, classes, seed))
    found = (*V[0, :2].tolist(), V.double().pow(3).sum().item())
    assert found == pytest.approx(STORED[dim, classes, seed], abs=1e-6)


def assert_frame(V):
    """Unit columns at equal angles that sum to 0."""
    classes = V.shape[1]
    target = (classes * torch.eye(classes, dtype=V.dtype) - 1) / (classes - 1)
    assert (V.T @ V - target).abs().max() < 1e-12
    assert V.sum(1).abs().max() < 1e-12


@pytest.mark.parametrize(("dim", "classes"), [(1000, MANY), (MANY, MANY), (1499, 1500), (1500, 1500), (2048, 1500)])
def test_frames_of_more_classes(dim, classes):
    V = simplex_etf(dim, classes, 7, dtype=torch.float64)
    assert V.shape == (dim, classes)
    assert_frame(V)
    # No vector lies along an axis, and signs are mixed.
    assert V.abs().max() < 2 / math.sqrt(dim)
    assert (V > 0).double().mean(0).sub(0.5).abs().max() < 0.1


def test_the_orientation_of_more_classes_is_the_seeds():
    first, again, other = (simplex_etf(MANY, MANY, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert (first.T * other.T).sum(1).abs().max() < 0.3


def double(tree):
    return {name: leaf.double() for name, leaf in tree.items()}


@pytest.fixture(scope="module")
def along_axes():
    """A head of 1,001 classes and 8 features: its tensors, and the same with class vectors in place of signs."""
    head = EtfProjectorHead()
    made = head.init(8, MANY, Streams(3))
    params, fixed = double(made.params), double(made.fixed)
    return head, params, fixed, fixed | {"etf": class_vectors(fixed["etf"])}


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_projector_to_many_classes_has_signs_for_class_vectors(along_axes):
    head, _, fixed, dense = along_axes
    signs = fixed["etf"]
    assert signs.shape == (MANY,)
    assert signs.abs().eq(1).all()
    assert 0.4 < (signs > 0).double().mean() < 0.6
    assert_frame(dense["etf"])
    assert not torch.equal(head.init(8, MANY, Streams(4)).fixed["etf"], signs.float())
    # A width that the user chose, and class vectors among the features, are as before.
    assert EtfProjectorHead(proj_dim=MANY).init(8, MANY, Streams(3)).fixed["etf"].shape == (MANY, MANY)
    assert EtfProjectorHead(projector=False).init(1200, MANY, Streams(3)).fixed["etf"].shape == (1200, MANY)
    assert head.init(8, 1000, Streams(3)).fixed["etf"].shape == (1000, 1000)


def test_signs_give_the_logits_of_the_class_vectors(along_axes):
    head, params, fixed, dense = along_axes
    z, weights = normal(4, 8), normal(4, MANY, seed=1)

    def logits(fixed):
        leaves = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
        output = head(leaves, fixed, z)
        raw = head.raw_logits(leaves, fixed, output)
        return (output.logits, raw, *torch.autograd.grad((output.logits * weights).sum(), list(leaves.values())))

    for ours, theirs in zip(logits(fixed), logits(dense), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_a_phase_trains_class_vectors_and_not_signs(along_axes):
    head, _, fixed, dense = along_axes
    freed = head.free(fixed, {"etf", "projector.weight"})
    assert freed.keys() == {"etf"}
    assert torch.equal(freed["etf"], dense["etf"])
    assert torch.equal(head.free(dense, {"etf"})["etf"], dense["etf"])


@pytest.mark.parametrize("with_bias", [True, False])
def test_own_cosines_are_those_of_the_projected_points(along_axes, with_bias):
    _, params, fixed, dense = along_axes
    points, weights = normal(MANY, 8, seed=2), normal(MANY, seed=3)
    points[5] = 0

    def cosines(of):
        weight, bias = (params[f"projector.{part}"].clone().requires_grad_() for part in ("weight", "bias"))
        found = of(weight, bias if with_bias else None)
        leaves = (weight, bias) if with_bias else (weight,)
        return (found, *torch.autograd.grad((found * weights).sum(), leaves))

    ours = cosines(lambda weight, bias: own_cosines(points, weight, bias, fixed["etf"]))
    theirs = cosines(lambda w, a: cosine(torch.nn.functional.linear(points, w, a), dense["etf"].mT))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_own_cosines_in_single_precision_and_for_many_clients(along_axes):
    _, params, fixed, _ = along_axes
    points, weight, bias = normal(MANY, 8, seed=2), params["projector.weight"], params["projector.bias"]
    exact = own_cosines(points, weight, bias, fixed["etf"])
    single = own_cosines(points.float(), weight.float(), bias.float(), fixed["etf"].float())
    assert (single.double() - exact).abs().max() < 1e-6
    both = torch.stack((weight, 2 * weight))
    mapped = torch.func.vmap(own_cosines, in_dims=(None, 0, None, None))(points, both, bias, fixed["etf"])
    torch.testing.assert_close(mapped[0], exact)
    torch.testing.assert_close(mapped[1], own_cosines(points, 2 * weight, bias, fixed["etf"]))
