"""A federation ends with the weights of a run in one process."""

import pytest

pytest.importorskip("flwr")

pytestmark = pytest.mark.slow


def test_four_nodes_train_fedblade_to_the_same_weights(federation):
    federation.make(method="fedblade", num_clients=4, clients_per_round=4)
    federation.call("up", "--nodes", "4")
    federation.ended(federation.run())
    assert len(federation.rows()) == 3
    assert federation.digest() == federation.undisturbed()
