import math

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import heads as registry
from fedblade.core.streams import Streams
from fedblade.heads import EtfProjectorHead, LinearHead, Scale
from fedblade.losses import balanced_cross_entropy

STREAMS = Streams(7)


def features(batch=4, dim=6, seed=0):
    return torch.randn(batch, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tensors(head, dim=6, classes=3):
    made = head.init(dim, classes, STREAMS)
    return tuple({name: leaf.double() for name, leaf in tree.items()} for tree in (made.params, made.fixed))


def test_linear_head_is_an_affine_map():
    head = LinearHead()
    params, fixed = tensors(head)
    assert {name: tuple(leaf.shape) for name, leaf in params.items()} == {"head.weight": (3, 6), "head.bias": (3,)}
    assert fixed == {}
    z = features()
    output = head(params, fixed, z)
    torch.testing.assert_close(output.logits, z @ params["head.weight"].T + params["head.bias"])
    assert output.projected is z
    assert head.project(params, z) is z
    assert head.constrain(params) == {}


@pytest.mark.parametrize(("head", "prefix"), [(LinearHead(), "head"), (EtfProjectorHead(proj_dim=80), "projector")])
def test_affine_maps_start_as_torch_starts_them(head, prefix):
    params = head.init(400, 80, STREAMS).params
    bound = 1 / math.sqrt(400)
    for part in ("weight", "bias"):
        leaf = params[f"{prefix}.{part}"]
        assert leaf.dtype == torch.float32
        assert leaf.abs().max() <= bound
        assert leaf.abs().max() > 0.9 * bound
        assert leaf.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_initial_tensors_depend_on_the_streams_only():
    for head in (LinearHead(), EtfProjectorHead()):
        first, again, other = (head.init(6, 3, Streams(seed)).params for seed in (1, 1, 2))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert not all(torch.equal(first[name], other[name]) for name in first)


def test_etf_head_gives_scaled_cosines():
    head = EtfProjectorHead(proj_dim=5, scale=Scale(init=2.5))
    params, fixed = tensors(head)
    shapes = {name: tuple(leaf.shape) for name, leaf in (params | fixed).items()}
    assert shapes == {"projector.weight": (5, 6), "projector.bias": (5,), "scale": (), "etf": (5, 3)}
    z = features()
    output = head(params, fixed, z)
    projected = z @ params["projector.weight"].T + params["projector.bias"]
    torch.testing.assert_close(output.projected, projected)
    for i in range(4):
        for c in range(3):
            v = fixed["etf"][:, c]
            expected = 2.5 * projected[i] @ v / projected[i].norm()
            assert output.logits[i, c].item() == pytest.approx(expected.item(), rel=1e-12)
    assert output.logits.sum(1).abs().max() < 1e-6
    prototypes = features(3, seed=2)
    torch.testing.assert_close(head.project(params, prototypes), head(params, fixed, prototypes).projected)


def test_scaling_the_projection_leaves_the_loss():
    head, z, labels = EtfProjectorHead(), features(), torch.tensor([0, 1, 2, 0])
    params, fixed = tensors(head)
    stretched = {name: leaf * (9 if name.startswith("projector") else 1) for name, leaf in params.items()}
    losses = [
        balanced_cross_entropy(head(each, fixed, z).logits, labels, torch.tensor([1, 2, 3]))
        for each in (params, stretched)
    ]
    torch.testing.assert_close(*losses)


def test_without_projector_class_vectors_live_among_the_features():
    head = EtfProjectorHead(projector=False)
    params, fixed = tensors(head)
    assert set(params) == {"scale"}
    assert fixed["etf"].shape == (6, 3)
    z = features()
    output = head(params, fixed, z)
    assert output.projected is z
    torch.testing.assert_close(output.logits, torch.nn.functional.normalize(z) @ fixed["etf"])


def test_switching_the_projector_off_does_not_move_the_class_vectors():
    wide, narrow = EtfProjectorHead(proj_dim=6), EtfProjectorHead(projector=False)
    assert torch.equal(wide.init(6, 3, STREAMS).fixed["etf"], narrow.init(6, 3, STREAMS).fixed["etf"])


def test_a_fixed_scale_is_no_parameter():
    head = EtfProjectorHead(scale=Scale(init=3.0, learnable=False))
    params, fixed = tensors(head)
    assert "scale" not in params
    assert fixed["scale"] == 3
    learnable = EtfProjectorHead(scale=Scale(init=3.0))
    torch.testing.assert_close(
        head(params, fixed, features()).logits, learnable(*tensors(learnable), features()).logits
    )
    assert head.constrain(params) == {}


def test_the_scale_is_clamped_in_place_and_counted():
    head = EtfProjectorHead()
    for start, end, count in ((-0.5, 1e-3, 1), (2.0, 2.0, 0)):
        leaf = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        counters = head.constrain({"scale": leaf})
        assert leaf.item() == pytest.approx(end)
        assert counters["count_scale_clamped"] == count
    stacked = {"scale": torch.tensor([-1.0, 1.0, 0.0])}
    assert head.constrain(stacked)["count_scale_clamped"].tolist() == [1, 0, 1]
    torch.testing.assert_close(stacked["scale"], torch.tensor([1e-3, 1.0, 1e-3]))
    free = {"scale": torch.tensor(-1.0)}
    assert EtfProjectorHead(scale=Scale(min="none")).constrain(free) == {}
    assert free["scale"] == -1


@pytest.mark.parametrize("head", [LinearHead(), EtfProjectorHead(), EtfProjectorHead(projector=False)])
def test_vmap_over_clients_equals_a_loop(head):
    z = torch.stack([features(seed=seed) for seed in range(3)])
    made = [head.init(6, 3, Streams(seed)) for seed in range(3)]
    fixed = {name: leaf.double() for name, leaf in made[0].fixed.items()}
    stacked = {name: torch.stack([each.params[name].double() for each in made]) for name in made[0].params}

    def value(params, client):
        return head(params, fixed, client).logits.square().sum()

    gradients = torch.func.vmap(torch.func.grad(value))(stacked, z)
    for k in range(3):
        alone = torch.func.grad(value)({name: leaf[k] for name, leaf in stacked.items()}, z[k])
        for name, each in alone.items():
            torch.testing.assert_close(gradients[name][k], each)


def test_a_zero_projection_gives_zero_logits_and_no_gradient():
    head = EtfProjectorHead(projector=False)
    params, fixed = tensors(head)
    z = torch.zeros(2, 6, dtype=torch.float64, requires_grad=True)
    logits = head(params, fixed, z).logits
    assert (logits == 0).all()
    assert (torch.autograd.grad(logits[:, 0].sum(), z)[0] == 0).all()


def test_registry_and_refusals():
    assert {"linear", "etf_projector"} <= set(registry.names())
    assert registry.get("etf_projector").make(proj_dim=8) == EtfProjectorHead(proj_dim=8)
    with pytest.raises(Misconfigured, match="needs the projector"):
        EtfProjectorHead(proj_dim=8, projector=False)
    with pytest.raises(Misconfigured, match=r"scale.init=0.0 must be positive"):
        Scale(init=0.0)
    with pytest.raises(Misconfigured, match=r"scale.min=2.0 must lie between"):
        Scale(min=2.0)
    with pytest.raises(Misconfigured, match="needs at least 9 dimensions"):
        EtfProjectorHead(proj_dim=5).init(6, 10, STREAMS)


@pytest.fixture
def wide_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


HEADS = (LinearHead(), EtfProjectorHead(), EtfProjectorHead(scale=Scale(learnable=False)))
EXPECTED = [head.init(6, 3, STREAMS) for head in HEADS]


@pytest.mark.usefixtures("wide_default")
@pytest.mark.parametrize(("head", "expected"), list(zip(HEADS, EXPECTED, strict=True)))
def test_initial_tensors_do_not_depend_on_the_default_dtype(head, expected):
    made = head.init(6, 3, STREAMS)
    for ours, theirs in ((made.params, expected.params), (made.fixed, expected.fixed)):
        assert ours.keys() == theirs.keys()
        assert all(leaf.dtype == torch.float32 and torch.equal(leaf, theirs[name]) for name, leaf in ours.items())
