"""A trained network as a plain module: every kind of head, frozen layers, necks, and models without a last layer."""

import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.frozen import FrozenNorm
from support.five_modules import Cnn, arrays, sequential
from support.own_modules import half_frozen

X, Y, X_TEST, Y_TEST = arrays("sequential")
SETTINGS = {"num_clients": 10, "rounds": 1, "metrics": ["accuracy"]}
HEADS = ["fedavg", "fedbabu", "fedrod", "dotreg", "fedgela", "fedetf", "spherefed", "fednh"]
"""A method for each kind of head."""


def trained(model, method="fedavg", dataset=(X, Y, X_TEST, Y_TEST), **settings):
    return fedblade.run(dataset=dataset, model=model, method=method, **SETTINGS, **settings).model


def assert_same_logits(model, inputs):
    net = model.module()
    torch.testing.assert_close(net(model.normalise(inputs)), model(inputs), rtol=1e-4, atol=1e-5)
    return net


@pytest.mark.parametrize("method", HEADS)
def test_every_head_is_made_of_plain_layers(method):
    model = trained(sequential(), method)
    drawn = torch.random.get_rng_state()
    net = assert_same_logits(model, torch.from_numpy(X_TEST))
    assert all(type(layer).__module__.startswith("torch.nn.") for layer in net.modules())
    assert torch.equal(torch.random.get_rng_state(), drawn), "making the module draws nothing"
    # A vector of zeros has no direction, and still has finite logits and gradients.
    inputs = torch.zeros(2, 8, requires_grad=True)
    net(inputs).sum().backward()
    assert inputs.grad.isfinite().all()


def test_what_the_method_keeps_has_no_gradient():
    assert not trained(sequential(), "fedbabu").module()[3].weight.requires_grad
    assert trained(sequential(), "fedavg").module()[3].weight.requires_grad


def test_a_last_layer_without_bias_gets_the_bias_that_the_head_has_trained():
    model = trained(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3, bias=False)))
    assert list(assert_same_logits(model, torch.from_numpy(X_TEST)).state_dict())[2:] == ["2.weight", "2.bias"]


def test_frozen_layers_are_the_users_own_again():
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, 6, generator=rng).numpy(), torch.randint(0, 5, (120,), generator=rng).numpy()
    model = trained(half_frozen(), dataset=(x[:80], y[:80], x[80:], y[80:]), **{"model.output": "logits"})
    net = assert_same_logits(model, torch.from_numpy(x[80:]))
    assert not any(isinstance(layer, FrozenNorm) for layer in net.modules())
    assert {name for name, leaf in net.named_parameters() if not leaf.requires_grad} == {
        "0.weight", "0.bias", "1.weight", "1.bias"
    }  # fmt: skip
    half_frozen(1).load_state_dict(net.state_dict())


def test_a_neck_is_part_of_the_head():
    model = trained(sequential(), **{"model.neck": 5})
    net = assert_same_logits(model, torch.from_numpy(X_TEST))
    assert [tuple(layer.weight.shape) for layer in net[3]] == [(5, 16), (3, 5)]


def test_pictures_are_normalised_before():
    x, y, x_test, y_test = arrays("cnn")
    pixels, test_pixels = ((20 * part).clip(0, 255).astype("uint8") for part in (x, x_test))
    model = trained(Cnn(), dataset=(pixels, y, test_pixels, y_test))
    assert_same_logits(model, torch.from_numpy(test_pixels))


def test_a_model_without_a_last_layer_has_a_body_and_a_head():
    model = trained(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), "fedetf")
    net = assert_same_logits(model, torch.from_numpy(X_TEST))
    assert list(dict(net.named_children())) == ["body", "head"]
    assert list(net.body.state_dict()) == ["0.weight", "0.bias"]


def test_a_model_of_the_library_has_a_body_and_a_head():
    model = fedblade.run("quickstart", method="fedblade", **(SETTINGS | {"num_clients": 20})).model
    assert_same_logits(model, torch.randint(0, 17, (5, 1, 8, 8)))
