"""What is common to all rounds: cohorts, schedules, buffers, evaluation, failures."""

import json

import numpy as np
import pytest
import torch

from fedblade.core.errors import NonFinite
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.runs import execute
from support.small_federation import (
    BATCH_NORM,
    CNN,
    assert_same_bits,
    assert_same_run,
    build,
    images,
    tasks,
    train,
    vectors,
)

METHODS = ["fedavg", "fedprox", "feddecorr", "fedetf", "fedblade", "fedprox+feddecorr", "fedetf+lddecorr"]


def test_the_same_seed_draws_the_same_cohorts_for_all_methods():
    drawn = [[row["clients"] for row in train(m, clients_per_round=2, rounds=5).history] for m in METHODS]
    assert all(cohorts == drawn[0] for cohorts in drawn)
    assert len({tuple(c) for c in drawn[0]}) > 1


def test_cohorts_do_not_depend_on_model_or_local_work():
    one = build(clients_per_round=2, rounds=4)
    other = build(data=images(150), clients_per_round=2, rounds=4, **CNN, **{"local.epochs": 1, "local.batch_size": 3})
    assert [c.tolist() for c in one.cohorts] == [c.tolist() for c in other.cohorts]


@pytest.mark.parametrize("method", METHODS)
def test_all_methods_start_from_the_same_body(method):
    mine, fedavg = build(method, **BATCH_NORM).start, build("fedavg", **BATCH_NORM).start
    body = {name for name in mine.params if name.startswith("body.")}
    assert_same_bits({n: mine.params[n] for n in body}, {n: fedavg.params[n] for n in body})
    assert_same_bits(mine.buffers, fedavg.buffers)


@pytest.mark.parametrize("method", METHODS)
def test_running_again_gives_the_same_history(method):
    assert_same_run(train(method, **BATCH_NORM), train(method, **BATCH_NORM))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_disk_is_the_run_in_memory(method, tmp_path):
    setup = build(method, **BATCH_NORM)
    result = execute(setup.config, out=tmp_path / "run", dataset=vectors())
    memory = train(method, **BATCH_NORM)
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert [{k: v for k, v in row.items() if "seconds" not in k} for row in lines] == memory.history
    assert_same_bits(result.model._tree("params"), memory.state.params)


RATES = {
    "constant": [0.05] * 8,
    "exp": [0.05 * 0.99**t for t in range(8)],
    "step": [0.05] * 4 + [0.005] * 2 + [0.0005] * 2,
}


@pytest.mark.parametrize("schedule", RATES)
def test_schedules(schedule):
    history = train(schedule=schedule, rounds=8, clients_per_round=1).history
    assert [row["lr"] for row in history] == pytest.approx(RATES[schedule], rel=1e-12)


def test_the_step_schedule_of_feddr():
    """T=320: drops after rounds 160 and 240."""
    optimizer = build(schedule="step").config.optimizer
    rates = [optimizer.rate(t, 320) / 0.05 for t in (0, 159, 160, 239, 240, 319)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_the_scheduled_rate_is_the_one_trained_with():
    ran = train(schedule="step", rounds=2, momentum=0.0, clients_per_round=1)
    setup = ran.setup
    first = train(rounds=1, momentum=0.0, clients_per_round=1).state
    task = tasks(setup, 1)[0]
    row, _ = local_train(setup.problem, receive(setup.problem, first.replace(round=1), task, None, 0.005))
    for name, leaf in row.params.items():
        torch.testing.assert_close(ran.state.params[name], leaf, rtol=0, atol=1e-14)


def test_running_statistics_are_averaged_by_default():
    ran = train(rounds=1, **BATCH_NORM)
    setup = ran.setup
    rows = [local_train(setup.problem, receive(setup.problem, setup.start, t, None, 0.05))[0] for t in tasks(setup)]
    sizes = np.array([len(t.indices) for t in tasks(setup)], dtype=float)
    name = "body.layers.1.running_var"
    expected = sum(a * row.buffers[name] for a, row in zip(sizes / sizes.sum(), rows, strict=True))
    torch.testing.assert_close(ran.state.buffers[name], expected, rtol=0, atol=1e-13)
    steps = max(t.num_steps for t in tasks(setup))
    assert ran.state.buffers["body.layers.1.num_batches_tracked"] == steps


def test_batch_statistics_leave_nothing_to_average_and_train_alike():
    """Training normalises by the batch in either mode; only what is measured differs."""
    batch, running = train(**BATCH_NORM, **{"model.norm_stats": "batch"}), train(**BATCH_NORM)
    assert batch.state.buffers == {}
    assert_same_bits(batch.state.params, running.state.params)
    assert batch.history[-1]["test_loss"] != running.history[-1]["test_loss"]


def test_batch_statistics_are_those_of_the_evaluation_batch():
    ran = train(**BATCH_NORM, **{"model.norm_stats": "batch"})
    setup = ran.setup
    inputs, labels = setup.test.batch(setup.test_order)
    z = setup.problem.network.features(ran.state.params, {}, inputs, training=False)
    logits = setup.problem.network.output(ran.state.params, {}, z).logits
    assert ran.history[-1]["test_loss"] == pytest.approx(
        torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-12
    )


@pytest.mark.parametrize("every", [1, 2, 3, 9])
def test_evaluation_every(every):
    history = train(rounds=7, clients_per_round=1, **{"evaluation.every": every}).history
    evaluated = [row["round"] for row in history if "test_accuracy" in row]
    assert evaluated == sorted({r for r in range(1, 8) if r % every == 0} | {7})


def test_evaluation_does_not_disturb_training():
    often, rarely = (train(rounds=4, **BATCH_NORM, **{"evaluation.every": e}) for e in (1, 4))
    assert_same_bits(often.state.flat(), rarely.state.flat())


def test_more_metrics_do_not_disturb_training():
    plain, measured = train(), train(metrics=["accuracy", "erank_feature", "nc1"])
    assert measured.history[-1].keys() > plain.history[-1].keys()
    assert_same_bits(plain.state.flat(), measured.state.flat())


def test_accuracy_and_loss_are_those_of_the_global_model():
    ran = train("fedetf", **BATCH_NORM)
    setup, state = ran.setup, ran.state
    inputs, labels = setup.test.batch(torch.arange(len(setup.test)))
    z = setup.problem.network.features(state.params, state.buffers, inputs, training=False)
    logits = setup.problem.network.output(state.params, state.fixed, z).logits
    assert ran.history[-1]["test_accuracy"] == pytest.approx(100 * (logits.argmax(1) == labels).double().mean().item())
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    assert ran.history[-1]["test_loss"] == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("method", ["fedavg", "fedblade"])
def test_singletons_are_skipped_and_counted_under_batch_norm(method):
    """Batches of 51 leave client 1 (52 samples) a single one per epoch."""
    single = {"local.batch_size": 51}
    assert [row["count_skipped_singletons"] for row in train(method, **BATCH_NORM, **single).history] == [2, 2]
    assert [row["count_skipped_singletons"] for row in train(method, **single).history] == [0, 0]


def test_a_run_that_explodes_stops_with_the_round_named():
    with pytest.raises(NonFinite, match=r"round 1"):
        train(lr=1e200)


def test_a_client_with_one_sample_takes_part_under_batch_statistics():
    """Filled batches let it train; the pass for its prototypes must then cope with a single sample."""
    data = vectors(30)
    overrides = {"partition.alpha": 0.5, "partition.min_size": 1, "num_clients": 12, "clients_per_round": 12, "seed": 0}
    wrapped = {"local.last_batch": "wrap", "local.batch_size": 2, "model.norm_stats": "batch"}
    setup = build("fedblade", data, **overrides, **wrapped, **BATCH_NORM)
    assert setup.clients.train.sizes().min() == 1
    train("fedblade", data, rounds=1, **overrides, **wrapped, **BATCH_NORM)
