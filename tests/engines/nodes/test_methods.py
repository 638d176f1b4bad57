"""Every method trained by nodes gives the sequential engine's model, to the last bit."""

import pytest

from fedblade.core.registry import methods
from fedblade.flower.app import Deployment
from fedblade.runs import load_config
from support.node_runs import SMALL, Far, alone, config_of, digest
from support.sample import sampled


def comparable(driver):
    """The history without clocks and bytes, and without the mark of what nodes have measured."""
    return [
        {k: v for k, v in row.items() if "seconds" not in k and not k.startswith("bytes") and k != "claimed"}
        for row in driver.history
    ]


@pytest.mark.parametrize("method", sampled(sorted(methods.names()), pytest.mark.thorough))
def test_nodes_give_the_sequential_model(method, tmp_path):
    config = config_of(method)
    near, run = alone(config), Far(config, tmp_path, Deployment(), order=lambda ids: ids[::-1])
    far = run.trained()
    assert run.events == []
    assert digest(far) == digest(near)
    assert comparable(far) == comparable(near)


VARIANTS = {
    "ditto": {"method.variant": "fedbabu"},
    "fedexp": {"method.rule": "released"},
    "fedgela": {"method.head": "projected"},
    "perfedavg": {"method.carry_momentum": True},
}


def test_nodes_give_the_sequential_model_of_variants(tmp_path):
    """What they add: a model that is dropped after the round, numbers of the server, a scale, momentum."""
    for method, knobs in VARIANTS.items():
        config = config_of(method, **knobs)
        assert digest(Far(config, tmp_path / method, Deployment()).trained()) == digest(alone(config))


@pytest.mark.parametrize(
    ("method", "protocol"), [("fedavg-ft", "ft"), ("fedavg", "gapa"), ("fedgela", "pers_etf"), ("fedper", "gapa")]
)
def test_own_models_are_tuned_and_measured_where_the_data_are(method, protocol, tmp_path):
    config = config_of(method, **{"evaluation.protocol": protocol, "dataset.test_split": "holdout"})
    near, run = alone(config), Far(config, tmp_path, Deployment(), order=lambda ids: ids[::-1])
    far = run.trained()
    assert run.events == []
    assert far.clients == near.clients
    assert far.clients
    assert comparable(far) == comparable(near)


FROZEN = """
from torch import nn

def net(input_shape):
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 16), nn.BatchNorm1d(16)
    )
    for leaf in module[1:3].parameters():
        leaf.requires_grad_(False)
    return module
"""


def test_frozen_layers_are_made_by_the_nodes_and_do_not_travel(tmp_path):
    """A node whose frozen layers are not the server's is sent them, with the same result."""
    file = tmp_path / "mine.py"
    file.write_text(FROZEN)
    plain = {key: value for key, value in SMALL.items() if not key.startswith("model")}
    changes = {"method": "fedetf", "model": f"{file}:net", "num_clients": 2, "clients_per_round": 2}
    config = load_config("quickstart", plain | changes)[0]
    near, run = alone(config), Far(config, tmp_path / "same", Deployment())
    frozen = {f"fixed/body.{number}.{name}" for number in (1, 2) for name in ("weight", "bias")}
    far = run.trained()
    assert run.events == []
    assert digest(far) == digest(near)
    asked = [request for request in run.transport.asked if request.kind == "train"]
    assert len(asked) == 4
    assert not any(name.startswith("fixed/") for request in asked for name in request.tensors)

    def stranger(request, reply):
        if request.kind == "hello" and request.node == 101:
            reply.facts["clients"]["1"]["fixed"] = "another"
        return [reply]

    other = Far(config, tmp_path / "other", Deployment(), tamper=stranger)
    assert digest(other.trained()) == digest(near)
    for request in (each for each in other.transport.asked if each.kind == "train"):
        assert (frozen <= request.tensors.keys()) == (request.node == 101)
