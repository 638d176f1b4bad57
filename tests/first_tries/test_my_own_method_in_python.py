"""A person writes a method in a notebook, and compares it with others, with a bar and a callback."""

import pytest

import fedblade
from fedblade.api import Method, Misconfigured, RunListener, fedavg, register_method
from fedblade.core.registry import methods

SMALL = {
    "num_clients": 6, "clients_per_round": 3, "rounds": 2, "epochs": 1, "metrics": "accuracy", "model": "mlp",
    "device": "cpu",
}  # fmt: skip


def my_own_averaging(strength: float = 0.5) -> Method:
    """Averages as FedAvg does."""
    return fedavg()


def not_registered() -> Method:
    return fedavg()


@pytest.fixture
def registered(monkeypatch):
    """Other tests list all methods of the library."""
    monkeypatch.setattr(methods, "_entries", {entry.name: entry for entry in methods.entries()})
    register_method()(my_own_averaging)


@pytest.mark.usefixtures("registered")
def test_a_function_stands_for_its_name_in_a_run_a_comparison_and_a_sweep():
    result = fedblade.run(method=my_own_averaging, strength=0.7, **SMALL)
    assert result.summary["method"] == "my_own_averaging"
    compared = fedblade.compare(methods=["fedavg", my_own_averaging], seeds=[1], **SMALL)
    assert [each.summary["method"] for each in compared] == ["fedavg", "my_own_averaging"]
    assert compared[0].summary["final_accuracy"] == compared[1].summary["final_accuracy"]
    swept = fedblade.sweep(method=my_own_averaging, grid={"strength": [0.1, 0.2]}, seeds=[1], **SMALL)
    assert [trial.method for trial in swept.trials] == ["my_own_averaging"] * 2


@pytest.mark.parametrize("given", [not_registered, fedavg()], ids=["function", "method"])
def test_what_is_not_registered_is_refused_with_the_way(given):
    with pytest.raises(Misconfigured, match=r"fedblade\.api\.register_method\('my_name'\)\(function\)"):
        fedblade.run(method=given, **SMALL)


def test_callbacks_see_every_run_of_a_comparison():
    seen = []
    fedblade.compare(
        methods=["fedavg", "fedprox"], seeds=[1], callbacks=[lambda row: seen.append(row["round"])], **SMALL
    )
    assert seen == [1, 2, 1, 2]
    with pytest.raises(Misconfigured, match="callbacks that were passed as objects"):
        fedblade.compare(methods=["fedavg"], callbacks=[RunListener()], jobs=2, **SMALL)


def test_progress_is_shown_when_it_is_asked_for(capsys):
    fedblade.compare(methods=["fedavg"], seeds=[1, 2], progress=True, **SMALL)
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("[fedavg seed 2 (2/2)] round 2/2") for line in lines)
    fedblade.compare(methods=["fedavg"], seeds=[1], progress=False, **SMALL)
    assert "round" not in capsys.readouterr().err


def test_none_stands_for_the_setting_none():
    result = fedblade.run(method="fedavg", max_seconds=None, patience=None, **SMALL)
    assert len(result.history) == 2


def test_the_model_of_a_result_says_which_module_to_train():
    model = fedblade.run(method="fedavg", **SMALL).model
    assert sum(leaf.numel() for leaf in model.parameters()) == sum(leaf.numel() for leaf in model.module().parameters())
    with pytest.raises(Misconfigured, match=r"net = result\.model\.module\(\)\.train\(\)"):
        model.train()
    assert not model.eval().training
