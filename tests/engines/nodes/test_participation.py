"""Who takes part in a run on nodes: the coordinator chooses as a run on one machine does."""

import json

import pytest

from fedblade.core.errors import Misconfigured, Unsupported
from fedblade.flower.app import Deployment
from support.node_runs import Far, alone, config_of, digest, trained


def chosen(driver):
    return [(row["clients"], row["contributors"]) for row in driver.history]


CHOICES = [
    {"participation": "by_size"},
    {"participation": "fixed", "cohorts": [[0, 4], [1, 2, 3]]},
    {"participation": "power_of_choice", "candidates": 4},
]


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
@pytest.mark.parametrize("keys", CHOICES, ids=lambda keys: keys["participation"])
def test_nodes_give_the_cohorts_and_the_model_of_one_machine(method, keys, tmp_path):
    config = config_of(method, **keys)
    near, run = alone(config), Far(config, tmp_path, Deployment(), order=lambda ids: ids[::-1])
    far = run.trained()
    assert run.events == []
    assert digest(far) == digest(near)
    assert chosen(far) == chosen(near)
    assert far.clients == near.clients


def test_a_function_of_ones_own_stays_with_the_coordinator(tmp_path):
    """Nodes are not told of it: its file is on the coordinator's machine alone."""
    file = tmp_path / "mine.py"
    file.write_text("def largest(view):\n    return view.clients[view.losses(view.clients).argsort()[-2:]]\n")
    config = config_of("fedavg", participation=f"{file}:largest")
    run = Far(config, tmp_path, Deployment())
    far, near = run.trained(), alone(config)
    assert (digest(far), chosen(far)) == (digest(near), chosen(near))
    assert "largest" not in json.dumps([request.facts for request in run.transport.asked])


def test_a_candidate_without_an_answer_has_no_loss_and_is_not_chosen(tmp_path):
    config = config_of("fedavg", participation="power_of_choice", candidates=5, rounds=1)
    run = Far(config, tmp_path, Deployment(round_seconds=0.05, wait_seconds=0.05, quorum=0.5))
    setup = run.setup()
    (first, *_), _ = chosen(alone(config))[0]
    run.transport.offline.add(100 + first)
    clients, contributors = chosen(trained(setup))[0]
    assert first not in clients
    assert (len(clients), contributors) == (3, clients)


@pytest.mark.parametrize(("key", "value"), [("dropout", 0.3), ("partial_work", 0.5)])
def test_what_simulates_a_deployment_is_refused_in_one(key, value, tmp_path):
    with pytest.raises(Unsupported, match=rf"federation.{key} = {value:g} simulates .* Leave federation.{key} out"):
        Far(config_of("fedavg", **{key: value}), tmp_path).setup()


@pytest.mark.parametrize(("method", "protocol"), [("fedavg", "last10"), ("fedavg-ft", "ft")])
def test_unseen_clients_are_measured_where_their_data_are(method, protocol, tmp_path):
    keys = {"unseen": 0.4, "clients_per_round": 2, "test_split": "holdout", "evaluation.protocol": protocol}
    config = config_of(method, **keys)
    near, run = alone(config), Far(config, tmp_path, Deployment())
    far = run.trained()
    assert digest(far) == digest(near)
    assert far.clients == near.clients
    assert sum(record["unseen"] for record in far.clients) == 2


def test_nodes_with_data_of_their_own_are_not_kept_from_training(tmp_path):
    with pytest.raises(Misconfigured, match=r"federation\.unseen = 0\.4"):
        Far(config_of("fedavg", unseen=0.4, clients_per_round=2), tmp_path, Deployment(data="nodes")).setup()
