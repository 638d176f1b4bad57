"""Parts of the model that stay on the client: FedPer's head, FedBN's normalisation layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.one_client import receive
from fedblade.core.outcome import train_client
from fedblade.core.problem import BUFFERS, PERSONAL
from fedblade.core.state import MemoryStore
from fedblade.methods.fedavg import fedavg
from fedblade.results import RunDirectory
from support.small_federation import (
    BATCH_NORM,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
    vectors,
)

FEDPER = replace(fedavg(), personal=("head",), accuracy_of="personal")
FEDBN = replace(fedavg(), personal=("norm",), buffers="local", accuracy_of="personal")


def everything_sent(setup):
    sent = [train_client(setup.problem, setup.start, task, None, 0.05).sums for task in tasks(setup)]
    return {leaf for sums in sent for tree in sums.trees.values() for leaf in tree}


def test_a_personal_head_never_leaves():
    setup = build(FEDPER)
    assert not {name for name in everything_sent(setup) if name.startswith("head.")}
    assert setup.problem.shared == {name for name in setup.start.params if name.startswith("body.")}


def test_personal_normalisation_never_leaves():
    """Neither the affine tensors nor, with `buffers="local"`, the statistics."""
    setup = build(FEDBN, **BATCH_NORM)
    assert {name for name in everything_sent(setup) if name.startswith(("body.layers.1", "body.layers.4"))} == set()


@pytest.mark.parametrize(("method", "group"), [(FEDPER, "head."), (FEDBN, "body.layers.1.")])
def test_the_servers_copy_of_personal_parts_stays_at_the_start(method, group):
    ran = train(method, **BATCH_NORM)
    mine = {n for n in ran.state.params | ran.state.buffers if n.startswith(group)}
    both = (ran.state.params | ran.state.buffers, ran.setup.start.params | ran.setup.start.buffers)
    assert_same_bits(*({n: tree[n] for n in mine} for tree in both))
    shared = ran.setup.problem.shared & ran.state.params.keys()
    assert_different(*({n: tree[n] for n in shared} for tree in (ran.state.params, ran.setup.start.params)))


@pytest.mark.parametrize("method", [FEDPER, FEDBN], ids=["fedper", "fedbn"])
def test_personal_parts_cost_no_bytes(method):
    ran, fedavg_run = train(method, **BATCH_NORM), train(**BATCH_NORM)
    own = {n: v for n, v in ran.state.params.items() if n not in ran.setup.problem.shared}
    numbers = sum(v.numel() for v in own.values())
    if method is FEDBN:
        numbers += sum(v.numel() for v in ran.state.buffers.values())
    for row, base in zip(ran.history, fedavg_run.history, strict=True):
        assert base["bytes_down"] - row["bytes_down"] == 4 * numbers * 8
        assert base["bytes_up"] - row["bytes_up"] == 4 * numbers * 8


def test_a_client_goes_on_with_its_own_head():
    setup = build(FEDPER)
    task = tasks(setup)[0]
    first = train_client(setup.problem, setup.start, task, None, 0.05)
    assert first.state[PERSONAL].keys() == {"head.weight", "head.bias"}
    received = receive(setup.problem, setup.start, setup.planner.task(1, task.client), first.state, 0.05)
    assert torch.equal(received.anchor["head.weight"], first.state[PERSONAL]["head.weight"])
    assert not torch.equal(received.anchor["head.weight"], setup.start.params["head.weight"])
    assert torch.equal(received.anchor["body.layers.0.weight"], setup.start.params["body.layers.0.weight"])


def test_a_client_goes_on_with_its_own_statistics():
    setup = build(FEDBN, **BATCH_NORM)
    task = tasks(setup)[0]
    first = train_client(setup.problem, setup.start, task, None, 0.05)
    assert first.state[BUFFERS].keys() == setup.start.buffers.keys()
    received = receive(setup.problem, setup.start, setup.planner.task(1, task.client), first.state, 0.05)
    assert_same_bits(received.buffers, first.state[BUFFERS])
    assert received.buffers["body.layers.1.num_batches_tracked"] == task.num_steps


def test_a_newcomer_starts_from_the_initial_statistics():
    """Statistics that stay at home cannot reach a client that joins in a later round."""
    setup = build(FEDBN, **BATCH_NORM)
    sums = setup.engine.train(setup.start, tasks(setup)[:2], MemoryStore(), 0.05, lambda client: None).sums
    later = setup.method.server(setup.start, sums).replace(round=1)
    received = receive(setup.problem, later, setup.planner.task(1, 3), None, 0.05)
    assert_same_bits(received.buffers, setup.start.buffers)


def own_model(ran, client):
    own = ran.driver._store.get(client, ran.state.round) or {}
    return ran.state.params | own.get(PERSONAL, {}), ran.state.buffers | own.get(BUFFERS, {})


def accuracy_on(ran, client, indices):
    params, buffers = own_model(ran, client)
    inputs, labels = ran.setup.test.batch(indices)
    z = ran.setup.problem.network.features(params, buffers, inputs, training=False)
    logits = ran.setup.problem.network.output(params, {}, z).logits
    return 100 * (logits.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("method", [FEDPER, FEDBN], ids=["fedper", "fedbn"])
def test_personal_accuracy_is_the_mean_over_own_models(method):
    ran = train(method, vectors(150, 60), **BATCH_NORM)
    every = torch.arange(60)
    values = [accuracy_on(ran, client, every) for client in range(4)]
    assert ran.history[-1]["test_accuracy"] == pytest.approx(np.mean(values), abs=1e-10)
    assert len(set(values)) > 1


@pytest.mark.parametrize("split", ["matched", "proportional"])
def test_personal_accuracy_is_taken_on_each_clients_own_test_samples(split):
    """Protocol `gapa`: the unweighted mean over clients, beside the accuracy on the shared test set."""
    ran = train(FEDPER, vectors(150, 60), **{"dataset.test_split": split})
    parts = [ran.setup.clients.part(client) for client in range(4)]
    values = [accuracy_on(ran, k, torch.from_numpy(part)) for k, part in enumerate(parts) if len(part)]
    assert ran.history[-1]["personal_accuracy"] == pytest.approx(np.mean(values), abs=1e-10)


def test_clients_that_never_trained_are_tested_with_the_global_model():
    ran = train(FEDPER, rounds=1, clients_per_round=1)
    idle = [k for k in range(4) if k not in ran.history[0]["clients"]]
    assert_same_bits(own_model(ran, idle[0])[0], ran.state.params)


def test_without_normalisation_layers_fedbn_is_fedavg():
    """Also with states on disk, where there is nothing to keep."""
    fedbn = replace(fedavg(), personal=("norm",), buffers="local")
    assert_same_bits(train(fedbn).state.params, train().state.params)


def test_without_normalisation_layers_fedbn_is_fedavg_on_disk(tmp_path):
    fedbn = replace(fedavg(), personal=("norm",), buffers="local")
    directory = RunDirectory(tmp_path)
    directory.open(resume=False)
    assert_same_bits(train(fedbn, directory=directory).state.params, train().state.params)


@pytest.mark.parametrize("method", [FEDPER, FEDBN], ids=["fedper", "fedbn"])
def test_memory_and_disk_agree(method, tmp_path):
    directory = RunDirectory(tmp_path)
    directory.open(resume=False)
    overrides = {"rounds": 4, "clients_per_round": 2, **BATCH_NORM}
    assert_same_run(train(method, directory=directory, **overrides), train(method, **overrides))
