import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.neck import Neck
from fedblade.core.network import norm_names
from fedblade.core.network_building import BodyOptions, build_network
from fedblade.core.streams import Streams
from fedblade.core.tree import tree_clone
from fedblade.core.views import HeadOutput, HeadTensors
from fedblade.heads import EtfProjectorHead, LinearHead
from fedblade.models.mlp import Mlp
from fedblade.models.small_cnn import SmallCnn

EXAMPLE = torch.zeros(1, 6, dtype=torch.float64)


def mlp():
    return Mlp((6,), (8,), 4, "batch")


def build(make=mlp, head=None, example=EXAMPLE, seed=0, **options):
    return build_network(make, head or LinearHead(), 3, example, Streams(seed), BodyOptions(**options))


def test_the_body_is_the_same_under_every_head():
    _, linear, *_ = build()
    _, etf, _, fixed = build(head=EtfProjectorHead())
    body = {name for name in linear if name.startswith("body.")}
    assert body == {name for name in etf if name.startswith("body.")}
    assert all(torch.equal(linear[name], etf[name]) for name in body)
    assert linear.keys() - body == {"head.weight", "head.bias"}
    assert etf.keys() - body == {"projector.weight", "projector.bias", "scale"}
    assert fixed.keys() == {"etf"}


def test_the_seed_decides_the_start_and_the_global_generator_does_not():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    _, first, *_ = build()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    _, second, *_ = build()
    _, other, *_ = build(seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["body.layers.0.weight"], other["body.layers.0.weight"])
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_tensors_take_the_type_of_the_example():
    _, params, buffers, fixed = build(head=EtfProjectorHead())
    assert {leaf.dtype for leaf in (params | fixed).values()} == {torch.float64}
    assert {name.rpartition(".")[2]: leaf.dtype for name, leaf in buffers.items()} == {
        "running_mean": torch.float64,
        "running_var": torch.float64,
        "num_batches_tracked": torch.int64,
    }


def test_norm_names_are_all_tensors_of_normalisation_layers():
    assert norm_names(mlp()) == {
        f"body.layers.{i}.{name}"
        for i in (1, 4)
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    other = nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2), nn.LayerNorm(2))
    assert norm_names(other) == {f"body.{i}.{name}" for i in (1, 2) for name in ("weight", "bias")}
    assert norm_names(nn.BatchNorm1d(3)) >= {"body.weight", "body.running_mean"}


def test_groups_by_name():
    network, params, *_ = build(head=EtfProjectorHead())
    assert network.names_in(("projector",), params) == {"projector.weight", "projector.bias"}
    assert network.names_in(("scale",), params) == {"scale"}
    assert network.names_in(("norm",), params) == {f"body.layers.{i}.{n}" for i in (1, 4) for n in ("weight", "bias")}
    assert network.names_in(("body",), params) == {name for name in params if name.startswith("body.")}
    assert network.names_in((), params) == frozenset()


class NeckHead(LinearHead):
    """A linear head behind a trained scaling of the features."""

    def init(self, dim, num_classes, streams):
        start = super().init(dim, num_classes, streams)
        return HeadTensors({**start.params, "neck.weight": torch.ones(dim)}, start.fixed)

    def __call__(self, params, fixed, features):
        return HeadOutput(super().__call__(params, fixed, features * params["neck.weight"]).logits, features)


def test_the_neck_belongs_to_the_body():
    """The group `body` is extractor and neck."""
    network, params, *_ = build(head=NeckHead())
    assert "neck.weight" in network.names_in(("body",), params)


def test_training_updates_statistics_and_evaluation_does_not():
    network, params, buffers, _ = build()
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = tree_clone(buffers)
    network.features(params, buffers, inputs, training=False)
    assert all(torch.equal(buffers[name], kept[name]) for name in kept)
    network.features(params, buffers, inputs, training=True)
    assert buffers["body.layers.1.num_batches_tracked"] == 1
    assert not torch.equal(buffers["body.layers.1.running_mean"], kept["body.layers.1.running_mean"])


def test_features_come_from_the_tensors_passed_in_only():
    network, params, buffers, _ = build()
    inputs = torch.ones(3, 6, dtype=torch.float64)
    before = network.features(params, buffers, inputs, training=False)
    with torch.no_grad():
        for leaf in network.body.parameters():
            leaf.fill_(100.0)
    assert torch.equal(network.features(params, buffers, inputs, training=False), before)
    doubled = {name: leaf * 2 for name, leaf in params.items()}
    assert not torch.equal(network.features(doubled, buffers, inputs, training=False), before)


def test_batch_statistics_have_no_buffers_and_are_used_at_test_time():
    network, params, buffers, _ = build(norm_stats="batch")
    assert buffers == {}
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(7, 6, generator=generator, dtype=torch.float64)
    trained = network.features(params, buffers, inputs, training=True)
    assert torch.equal(network.features(params, buffers, inputs, training=False), trained)
    part = network.features(params, buffers, inputs[:3], training=False)
    assert not torch.allclose(part, trained[:3])


def spatial_cnn():
    return SmallCnn((1, 4, 4), 4)


@pytest.mark.parametrize(
    ("make", "shape", "rejects"),
    [
        (mlp, (6,), True),
        (lambda: Mlp((6,), (8,), 4, "none"), (6,), False),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4)), (6,), False),
        (spatial_cnn, (1, 4, 4), False),
        (lambda: nn.Sequential(nn.Conv2d(1, 3, 4), nn.BatchNorm2d(3), nn.Flatten()), (1, 4, 4), True),
    ],
)
@pytest.mark.parametrize("norm_stats", ["running", "batch"])
def test_networks_that_cannot_train_on_one_sample_are_found(make, shape, rejects, norm_stats):
    network, *_ = build(make, example=torch.zeros(1, *shape), norm_stats=norm_stats)
    assert network.skips_singletons == rejects


def test_probing_leaves_the_statistics_alone():
    _, _, buffers, _ = build(spatial_cnn, example=torch.ones(1, 1, 4, 4))
    assert buffers["body.stage1.1.num_batches_tracked"] == 0
    assert not buffers["body.stage1.1.running_mean"].any()


def test_the_width_is_found_by_a_forward_pass():
    network, params, *_ = build(lambda: nn.Linear(6, 11))
    assert network.dim == 11
    assert params["head.weight"].shape == (3, 11)


def test_inputs_that_do_not_fit_are_named():
    with pytest.raises(Misconfigured, match=r"model Linear cannot take inputs of shape \(6,\)"):
        build(lambda: nn.Linear(5, 2))


class Maps(nn.Module):
    def forward(self, inputs):
        return inputs.reshape(len(inputs), 2, 3)


class Pair(nn.Module):
    def forward(self, inputs):
        return inputs, inputs


@pytest.mark.parametrize(("module", "got"), [(Maps, r"\(2, 2, 3\)"), (Pair, "tuple")])
def test_outputs_that_are_no_features_are_named(module, got):
    with pytest.raises(Misconfigured, match=rf"returned {got} .*expected features \[2, dim\]"):
        build(module)


def test_a_neck_follows_the_body_and_belongs_to_it():
    _, plain, _, _ = build()
    network, params, _, _ = build(necks=[Neck(7)])
    assert network.dim == 7
    assert params["body.neck.weight"].shape == (7, 4)
    assert params["head.weight"].shape == (3, 7)
    assert "body.neck.weight" in network.names_in(("body",), params)
    own = {name: leaf for name, leaf in plain.items() if name.startswith("body.")}
    assert own
    assert all(torch.equal(leaf, params["body." + name]) for name, leaf in own.items())


def test_a_run_with_a_neck_is_read_back(tmp_path):
    result = fedblade.run(**{"model.neck": 7}, rounds=1, num_clients=2, clients_per_round=1, out=tmp_path / "run")
    again = fedblade.load(tmp_path / "run")
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(again(images), result.model(images))
    assert again.features(images).shape == (3, 7)
