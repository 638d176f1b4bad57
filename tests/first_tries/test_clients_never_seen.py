"""A person wants to know how a model does for clients that never took part."""

import pytest

import fedblade
from fedblade.api import Misconfigured

SMALL = {
    "num_clients": 10, "clients_per_round": 4, "rounds": 4, "epochs": 1, "metrics": "accuracy", "model": "mlp",
    "device": "cpu", "unseen": 0.2,
}  # fmt: skip


def test_the_gap_between_clients_that_trained_and_clients_never_seen():
    summary = fedblade.run("quickstart", method="fedavg", test_split="holdout", **SMALL).summary
    gap = summary["trained_clients_accuracy"] - summary["unseen_clients_accuracy"]
    assert summary["unseen_gap"] == pytest.approx(gap)
    assert summary["unseen_clients"] == 2


def test_the_gap_before_and_after_fine_tuning():
    result = fedblade.run("quickstart", method="fedavg-ft", test_split="holdout", **SMALL)
    assert {"unseen_gap", "tuned_unseen_gap"} <= result.summary.keys()
    assert [record["unseen"] for record in result.clients].count(True) == 2


def test_without_test_samples_of_their_own():
    """The first thing that a person types."""
    with pytest.raises(Misconfigured, match="test_split=matched"):
        fedblade.run("quickstart", method="fedavg", **SMALL)


def test_a_method_without_a_model_for_them():
    with pytest.raises(Misconfigured, match="method 'fedper'"):
        fedblade.run("quickstart", method="fedper", test_split="holdout", **SMALL)
