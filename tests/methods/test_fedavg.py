"""FedAvg against plain PyTorch, and the invariants of averaging."""

from dataclasses import replace

import pytest
import torch

import fedblade
import support.plain_torch as plain
from fedblade.core.state import MemoryStore
from fedblade.runs import Driver, RunListener, TrainedModel, prepare
from fedblade.runs._model_inputs import model_facts
from support.small_federation import (
    BATCH_NORM,
    CNN,
    TABLES,
    assert_close,
    assert_same_bits,
    assert_same_run,
    build,
    configure,
    images,
    tasks,
    train,
    vectors,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
SGD = (0.05, 0.9, 1e-3)


def batches_of(setup, round_, client):
    return [b.indices for phase in setup.planner.task(round_, client).phases for b in phase]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_one_client_is_centralised_sgd(norm):
    ran = train(partition="iid", num_clients=1, clients_per_round=1, **{"model.norm": norm})
    samples = ran.setup.problem.samples
    params, buffers = ran.setup.start.params, {n: v.clone() for n, v in ran.setup.start.buffers.items()}
    for round_ in range(2):
        loss = plain.cross_entropy(LAYERS[norm], buffers, samples.inputs, samples.labels)
        params = plain.local_sgd(loss, params, batches_of(ran.setup, round_, 0), *SGD)
    assert_close(ran.state.params, params, 1e-12)
    assert_close(ran.state.buffers, buffers, 1e-12)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_two_clients_and_two_steps_by_hand(norm, weighting):
    """Weights and running statistics are weighted means, the batch counter is a maximum."""
    overrides = {"model.norm": norm, "local.epochs": 1, "local.batch_size": 30, "weighting": weighting}
    ran = train(num_clients=2, clients_per_round=2, rounds=1, **overrides)
    setup, samples = ran.setup, ran.setup.problem.samples
    models, statistics, sizes = [], [], []
    for task in tasks(setup):
        buffers = {n: v.clone() for n, v in setup.start.buffers.items()}
        loss = plain.cross_entropy(LAYERS[norm], buffers, samples.inputs, samples.labels)
        models.append(plain.local_sgd(loss, setup.start.params, batches_of(setup, 0, task.client), *SGD))
        statistics.append(buffers)
        sizes.append(len(task.indices))
    assert sizes[0] != sizes[1]
    assert {task.num_steps for task in tasks(setup)} == {2, 4} or max(t.num_steps for t in tasks(setup)) >= 2
    weights = sizes if weighting == "samples" else [1, 1]
    assert_close(ran.state.params, plain.weighted_mean(models, weights), 1e-12)
    assert_close(ran.state.buffers, plain.weighted_mean(statistics, weights), 1e-12)
    if norm == "batch":
        assert ran.state.buffers["body.layers.1.num_batches_tracked"] == max(t.num_steps for t in tasks(setup))


def same_client_four_times(setup):
    first = tasks(setup)[2]
    return [replace(first, client=client) for client in range(4)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_identical_clients_agree_with_any_one_of_them(dtype):
    setup = build(dtype=dtype, weighting="uniform", **BATCH_NORM)
    cohort = same_client_four_times(setup)
    many = setup.engine.train(setup.start, cohort, MemoryStore(), 0.05, lambda client: None).sums
    one = setup.engine.train(setup.start, cohort[:1], MemoryStore(), 0.05, lambda client: None).sums
    together, alone = setup.method.server(setup.start, many), setup.method.server(setup.start, one)
    if dtype == "float32":
        assert_same_bits(together.flat(), alone.flat())
    assert_close(together.flat(), alone.flat(), 1e-12)


def test_permuting_the_clients_changes_nothing():
    setup = build(**BATCH_NORM)
    cohort = tasks(setup)

    def after(order):
        sums = setup.engine.train(setup.start, order, MemoryStore(), 0.05, lambda client: None).sums
        return setup.method.server(setup.start, sums).flat()

    assert_close(after(cohort), after(cohort[::-1]), 1e-12)
    assert_close(after(cohort), after([cohort[i] for i in (2, 0, 3, 1)]), 1e-12)


def test_the_head_starts_as_torch_starts_a_linear_layer():
    start = build(**{"model.dim": 400}).start.params
    bound = 400**-0.5
    for name in ("head.weight", "head.bias"):
        assert start[name].abs().max() <= bound
    assert start["head.weight"].std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def public_run(method="fedavg", **overrides):
    data = vectors()
    arrays = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    tables = {
        f"{section}.{key}": value
        for section, table in TABLES.items()
        if isinstance(table, dict)
        for key, value in table.items()
        if key != "name"
    }
    general = {key: TABLES[key] for key in ("seed", "device", "dtype", "engine")}
    options = {**general, **tables, "method": method, "model": "mlp", "partition": "dirichlet", **overrides}
    return fedblade.run(dataset=arrays, **options)


@pytest.mark.parametrize("method", ["fedavg", "fedetf"])
def test_the_public_call_is_the_same_run(method):
    result, ran = public_run(method), train(method)
    rows = [{k: v for k, v in row.items() if "seconds" not in k} for row in result.history]
    assert rows == ran.history
    inputs = vectors().test.inputs
    predicted = result.model.predict(inputs)
    share = 100 * (predicted.numpy() == vectors().test.labels).mean()
    assert share == pytest.approx(result.history[-1]["test_accuracy"], abs=1e-12)


class Underscores(torch.nn.Module):
    """Layers called `fc.1` and `fc_1`, which are two."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 16))
        self.fc_1 = torch.nn.Linear(16, 16)

    def forward(self, inputs):
        return self.fc_1(self.fc(inputs))


def test_the_trained_model_keeps_layers_of_similar_names_apart():
    ran = prepare(configure(model="object"), vectors(), Underscores())
    driver = Driver(ran, None, RunListener())
    driver.run()
    facts = model_facts(ran.dataset)
    model = TrainedModel(ran.problem.network, driver.state, facts, lambda: pytest.fail("a record is for exports"))
    z = ran.problem.network.features(driver.state.params, {}, ran.test.inputs, training=False)
    assert torch.equal(model.features(ran.test.inputs), z)


@pytest.mark.parametrize("model", ["mlp", "mlp_batch_norm", "cnn"])
def test_the_same_seed_gives_the_same_run(model):
    overrides = {"mlp": {}, "mlp_batch_norm": BATCH_NORM, "cnn": {**CNN, "dataset.augment": "crop_flip"}}[model]
    data = images() if model == "cnn" else vectors()
    torch.manual_seed(1)
    first = train(data=data, **overrides)
    torch.manual_seed(2)
    assert_same_run(first, train(data=data, **overrides))


def test_another_seed_gives_another_run():
    assert train(seed=1).history != train(seed=2).history
