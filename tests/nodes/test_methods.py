"""Every method trained by nodes gives the sequential engine's model, to the last bit."""

import pytest
from runs import Far, alone, config_of, digest

from fedblade.core.registry import methods
from fedblade.flower._app import Deployment


def comparable(driver):
    return [
        {k: v for k, v in row.items() if "seconds" not in k and not k.startswith("bytes")} for row in driver.history
    ]


@pytest.mark.parametrize("method", sorted(methods.names()))
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
