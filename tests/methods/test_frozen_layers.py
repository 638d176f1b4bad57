"""Layers with `requires_grad=False` stay as they are, whatever trains around them, and do not travel."""

import pytest
import torch
from torch import nn

import fedblade
from fedblade.core.errors import Misconfigured
from fedblade.core.state import MemoryStore
from fedblade.runs import Driver, RunListener, prepare
from support.own_modules import FROZEN, Constants, classifier, half_frozen
from support.small_federation import assert_close, configure, vectors

OWN = {"model": "object", "dataset.augment": "none"}


def setup_of(module, method="fedavg", **changes):
    return prepare(configure(method, **(OWN | changes)), vectors(), module)


def trained(module, method="fedavg", store=None, **changes):
    driver = Driver(setup_of(module, method, **changes), None, RunListener(), store)
    driver.run()
    return driver


def test_they_are_constants():
    """The run is that of a module in which the frozen block is a few tensors, and costs what that module costs."""
    module = half_frozen()
    ours = trained(module, rounds=2)
    others = classifier()
    constants = nn.Sequential(Constants(others[0], others[1]), nn.Identity(), *others[2:])
    theirs = trained(constants, rounds=2)
    assert_close(ours.state.params, theirs.state.params, 1e-12)
    assert_close(ours.state.buffers, theirs.state.buffers, 1e-12)
    assert ours.state.fixed.keys() == FROZEN
    for row, same in zip(ours.history, theirs.history, strict=True):
        assert row["bytes_up"] == same["bytes_up"]
    once = sum(leaf.numel() * leaf.element_size() for leaf in ours.state.fixed.values())
    assert ours.history[0]["bytes_down"] == theirs.history[0]["bytes_down"] + 4 * once
    assert ours.history[1]["bytes_down"] == theirs.history[1]["bytes_down"]


METHODS = ("fedavgm", "fedexp", "feddyn", "scaffold", "fednova", "fedbn", "fedrep", "ditto", "moon", "fedetf")


def test_no_rule_moves_them():
    """Neither engine, neither a server's step nor a client's own model, and no client keeps a copy."""
    for method in METHODS:
        _check_both_engines(method)


def _check_both_engines(method):
    module, found = half_frozen(), {}
    for engine in ("sequential", "stacked"):
        store = MemoryStore()
        driver = trained(module, method, store, rounds=1, engine=engine, epochs=1)
        for name in FROZEN:
            given = module.state_dict()[name.removeprefix("body.module.")]
            assert torch.equal(driver.state.fixed[name], given.to(driver.state.fixed[name].dtype)), name
        for state in (*driver.state.extra.values(), *(store.get(0, 9) or {}).values()):
            assert not FROZEN & state.keys()
        found[engine] = driver.state.params
    assert not FROZEN & found["stacked"].keys()
    assert_close(found["stacked"], found["sequential"], 1e-9)


def test_a_model_that_is_all_frozen_trains_its_head():
    module = classifier()
    for leaf in module[:-1].parameters():
        leaf.requires_grad_(False)
    for engine in ("sequential", "stacked"):
        for method in ("fedavg", "fedrep", "fedbn", "fedblade"):
            driver = trained(module, method, rounds=1, engine=engine)
            assert not any(name.startswith("body.") for name in driver.state.params)
    with pytest.raises(Misconfigured, match="nothing to train: model Sequential has no layer"):
        setup_of(module, "fedbabu")
    for name, words in (("bias", "frozen bias"), ("weight", "frozen weight and a frozen bias")):
        module[6].get_parameter(name).requires_grad_(False)
        with pytest.raises(Misconfigured, match=rf"last layer '6' .* has a {words} \(requires.* requires_grad=True"):
            setup_of(module)


def test_the_statistics_of_a_frozen_norm_are_frozen():
    """With a trained parameter they go on; without any parameter they follow the module that holds the norm."""
    partly = half_frozen()
    partly[1].weight.requires_grad_(True)
    assert "body.module.1.running_mean" in setup_of(partly).start.buffers
    plain = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False)), nn.Linear(8, 9))
    assert "body.0.1.running_mean" in setup_of(plain).start.buffers
    plain[0][0].requires_grad_(False)
    for norm_stats in ("running", "batch"):
        start = setup_of(plain, **{"model.norm_stats": norm_stats}).start
        assert start.fixed.keys() >= {"body.0.1.running_mean", "body.0.1.running_var"}
        assert not start.buffers


def test_they_are_saved_and_loaded(tmp_path):
    module, points = half_frozen(), vectors()
    settings = {"num_clients": 4, "clients_per_round": 4, "rounds": 1, "partition.min_size": 4, "engine": "sequential"}
    arrays = (points.train.inputs, points.train.labels, points.test.inputs, points.test.labels)
    result = fedblade.run(method="fedavg", model=module, dataset=arrays, out=tmp_path / "run", **settings)
    inputs = torch.from_numpy(points.test.inputs)
    last_frozen = classifier(seed=1)
    last_frozen[6].requires_grad_(False)
    for again in (half_frozen(seed=1), classifier(seed=1), last_frozen):
        loaded = fedblade.load(tmp_path / "run", model=again)
        assert torch.equal(loaded(inputs), result.model(inputs))
    with pytest.raises(Misconfigured, match="does not fit the run"):
        fedblade.load(tmp_path / "run", model=nn.Sequential(nn.Linear(6, 7), nn.ReLU()))
