"""Every method trained by nodes gives the sequential engine's model, to the last bit."""

import pytest
from local_post import LocalPost

from fedblade.core.registry import methods
from fedblade.core.tree import tree_digest
from fedblade.experiment._driver import Driver
from fedblade.experiment._progress import Silent
from fedblade.experiment._run import load_config
from fedblade.experiment._setup import prepare
from fedblade.flower._app import Deployment
from fedblade.flower._node import Node
from fedblade.flower._server import deployed_setup

SMALL = {
    "model": "mlp", "model.hidden": [12], "model.dim": 16, "num_clients": 5, "clients_per_round": 3, "rounds": 2,
    "epochs": 1, "batch_size": 128, "engine": "sequential", "device": "cpu", "evaluation.every": 2, "partition.min_size": 5,
}  # fmt: skip


def config_of(method, **changes):
    return load_config("quickstart", SMALL | {"method": method} | changes)[0]


def nodes(folder, clients=5):
    return {100 + k: Node((k,), None, folder / f"node{k}", "cpu") for k in range(clients)}


def trained(setup):
    driver = Driver(setup, None, Silent())
    driver.run()
    return driver


@pytest.mark.parametrize("method", sorted(methods.names()))
def test_nodes_give_the_sequential_model(method, tmp_path):
    config = config_of(method)
    alone = trained(prepare(config))
    post = LocalPost(nodes(tmp_path), order=lambda ids: ids[::-1])
    setup = deployed_setup(config, Deployment(), post, tmp_path / "run", lambda event: pytest.fail(str(event)))
    far = trained(setup)
    assert tree_digest(far.state.flat()) == tree_digest(alone.state.flat())
    plain = [
        {k: v for k, v in row.items() if "seconds" not in k and not k.startswith("bytes")} for row in alone.history
    ]
    other = [{k: v for k, v in row.items() if "seconds" not in k and not k.startswith("bytes")} for row in far.history]
    assert other == plain
