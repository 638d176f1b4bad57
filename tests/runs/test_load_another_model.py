"""Loading a run with another model than the one that was trained names what differs."""

import pytest
from torch import nn

import fedblade
from fedblade.api import Misconfigured
from support.five_modules import Mlp, arrays, sequential

SETTINGS = {"num_clients": 10, "rounds": 1, "metrics": ["accuracy"], "method": "fedavg"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "mine"
    fedblade.run(dataset=arrays("sequential"), model=sequential(), out=folder, **SETTINGS)
    return folder


@pytest.mark.parametrize(
    ("model", "differences"),
    [
        (
            nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)),
            r"'0\.weight' is \[16, 8\] in the run and \[32, 8\] in the model, .* and 4 more",
        ),
        (
            nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)),
            r"the model lacks '1\.weight' \[16\], '1\.bias' \[16\], '1\.num_batches_tracked' \[\] and 2 more",
        ),
        (Mlp(), r"the model lacks '0\.weight' .*; the run lacks 'hidden\.weight' \[16, 8\] and 'hidden\.bias' \[16\]"),
    ],
    ids=["wider", "without BatchNorm", "another class"],
)
def test_the_differences_are_named(folder, model, differences):
    with pytest.raises(Misconfigured, match=f"does not fit the run in '{folder}': .*{differences}.* same layers"):
        fedblade.load(folder, model=model)


def test_the_same_layers_fit(folder):
    assert fedblade.load(folder, model=sequential()).module()[0].weight.shape == (16, 8)


def test_a_model_beside_a_named_one_is_refused(tmp_path):
    fedblade.run(dataset=arrays("sequential"), model="mlp", out=tmp_path / "named", **SETTINGS)
    with pytest.raises(Misconfigured, match=r"has the model 'mlp', which is found by its name\. Leave model out"):
        fedblade.load(tmp_path / "named", model=sequential())
