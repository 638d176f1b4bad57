"""Layers between extractor and head: part of the body, drawn after it."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from fedblade.core.neck import Neck
from fedblade.core.network import norm_names
from fedblade.core.network_building import BodyOptions, build_network
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train_locally
from fedblade.core.phase import Phase
from fedblade.core.streams import Streams
from fedblade.heads import EtfProjectorHead, LinearHead
from fedblade.methods.fedavg import fedavg
from fedblade.models.mlp import Mlp
from support.small_federation import BATCH_NORM, assert_same_bits, build, tasks, train

EXAMPLE = torch.zeros(1, 6, dtype=torch.float64)


def network_of(*necks, head=None, seed=0):
    return build_network(
        lambda: Mlp((6,), (8,), 10, "batch"), head or LinearHead(), 3, EXAMPLE, Streams(seed), BodyOptions(necks=necks)
    )


def inputs():
    return torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


NECKS = [Neck(4), Neck(4, hidden=2.0), Neck(4, norm="batch"), Neck(4, hidden=0.5, norm="batch")]


@pytest.mark.parametrize("neck", NECKS)
def test_a_neck_is_part_of_the_body(neck):
    network, params, buffers, _ = network_of(neck)
    body = {name for name in params if not name.startswith("head.")}
    assert all(name.startswith("body.") for name in body | buffers.keys())
    assert network.names_in(("body",), params) == body
    assert network.dim == 4
    assert params["head.weight"].shape == (3, 4)


@pytest.mark.parametrize("neck", NECKS)
def test_the_extractor_starts_the_same_with_and_without_a_neck(neck):
    _, plain, buffers, _ = network_of()
    _, necked, own, _ = network_of(neck)
    inner = "body.body."
    extractor = {f"body.{n.removeprefix(inner)}": leaf for n, leaf in necked.items() if n.startswith(inner)}
    assert_same_bits(extractor, {name: leaf for name, leaf in plain.items() if name.startswith("body.")})
    statistics = {f"body.{n.removeprefix(inner)}": leaf for n, leaf in own.items() if n.startswith(inner)}
    assert_same_bits(statistics, buffers)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("neck", NECKS)
def test_a_neck_is_linear_after_a_hidden_layer_before_a_norm(neck, training):
    network, params, buffers, _ = network_of(neck)
    plain, plain_params, plain_buffers, _ = network_of()
    z = plain.features(plain_params, dict(plain_buffers), inputs(), training=training)
    layers = [params[name] for name in params if name.startswith("body.neck.")]
    if neck.hidden is not None:
        weight, bias, *layers = layers
        assert weight.shape == (round(10 * neck.hidden), 10)
        z = F.linear(z, weight, bias).relu()
    weight, bias, *layers = layers
    z = F.linear(z, weight, bias)
    if neck.norm == "batch":
        mean, var = (z.mean(0), z.var(0, correction=0)) if training else (z.new_zeros(4), z.new_ones(4))
        z = (z - mean) / (var + 1e-5).sqrt()
        weight, bias, *layers = layers
        assert torch.equal(weight, torch.ones_like(weight))
        assert torch.equal(bias, torch.zeros_like(bias))
    assert layers == []
    torch.testing.assert_close(network.features(params, buffers, inputs(), training=training), z, rtol=0, atol=1e-12)


def test_a_hidden_layer_is_never_empty():
    _, params, _, _ = network_of(Neck(4, hidden=0.01))
    assert params["body.neck.0.weight"].shape == (1, 10)


def test_the_norm_of_a_neck_is_a_norm_like_any_other():
    network, params, buffers, _ = network_of(Neck(4, norm="batch"))
    plain, *_ = network_of()
    tensors = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    own = {f"body.neck.1.{name}" for name in tensors}
    assert norm_names(network.body) == own | {f"body.{name}" for name in norm_names(plain.body)}
    assert "body.neck.1.running_mean" in network.buffer_names & buffers.keys()
    assert network.names_in(("norm",), params) >= {"body.neck.1.weight", "body.neck.1.bias"}
    assert network.skips_singletons


def test_a_neck_with_a_norm_cannot_train_on_one_sample():
    bare = build_network(lambda: Mlp((6,), (8,), 10, "none"), LinearHead(), 3, EXAMPLE, Streams(0))[0]
    assert not bare.skips_singletons
    necked = build_network(
        lambda: Mlp((6,), (8,), 10, "none"),
        LinearHead(),
        3,
        EXAMPLE,
        Streams(0),
        BodyOptions(necks=[Neck(4, norm="batch")]),
    )[0]
    assert necked.skips_singletons


def test_necks_follow_one_another():
    network, params, _, _ = network_of(Neck(7), Neck(4, hidden=1.0))
    assert params["body.body.neck.weight"].shape == (7, 10)
    assert params["body.neck.0.weight"].shape == (7, 7)
    assert params["body.neck.2.weight"].shape == (4, 7)
    assert network.dim == 4


def test_the_head_sees_the_necks_width():
    _, params, _, fixed = network_of(Neck(4), head=EtfProjectorHead())
    assert params["projector.weight"].shape[1] == 4
    assert fixed["etf"].shape[1] == 3


def test_the_models_neck_comes_before_the_methods():
    setup = build(replace(fedavg(), neck=Neck(4, hidden=1.0)), **{"model.neck": 7})
    assert setup.start.params["body.body.neck.weight"].shape == (7, 16)
    assert setup.start.params["body.neck.2.weight"].shape == (4, 7)
    plain = build()
    for name, leaf in plain.start.params.items():
        if name.startswith("body."):
            assert torch.equal(setup.start.params[f"body.body.{name}"], leaf)


def test_a_neck_trains_with_the_body_and_travels_with_it():
    setup = build(replace(fedavg(), neck=Neck(4, norm="batch"), phases=(Phase(trains=("body",)),)), **BATCH_NORM)
    row, _ = train_locally(setup.problem, receive(setup.problem, setup.start, tasks(setup)[0], None, 0.05))
    moved = {name for name, leaf in row.params.items() if not torch.equal(leaf, setup.start.params[name])}
    assert moved == setup.start.params.keys() - {"head.weight", "head.bias"}
    assert moved <= setup.problem.uploaded


def test_a_run_with_a_neck_learns_with_it():
    ran = train(replace(fedavg(), neck=Neck(4, norm="batch")), **BATCH_NORM)
    start, end = ran.setup.start, ran.state
    assert not torch.equal(end.params["body.neck.0.weight"], start.params["body.neck.0.weight"])
    assert not torch.equal(end.buffers["body.neck.1.running_mean"], start.buffers["body.neck.1.running_mean"])
