"""Runs in which not every client of the cohort answers or finishes, against plain references and other engines."""

import numpy as np
import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Unsupported
from fedblade.runs._cohorts import Cohorts
from support.cohorts import cohorts_of
from support.small_federation import assert_close, assert_different, build, configure, train, vectors

SIX = {"num_clients": 6, "clients_per_round": 3, "partition.min_size": 4}


def dropping(dropout, rounds=40):
    cohorts = cohorts_of("uniform", range(30), 10, rounds=rounds)
    return Cohorts(**{**vars(cohorts), "dropout": dropout})


def test_dropout_keeps_clients_of_the_cohort_and_at_least_one():
    cohorts = dropping(0.3, rounds=200)
    answered = [(cohort, cohorts.answering(t, cohort)) for t, cohort in enumerate(cohorts)]
    assert all(len(some) and set(some) <= set(cohort) for cohort, some in answered)
    assert np.mean([len(some) / len(cohort) for cohort, some in answered]) == pytest.approx(0.7, abs=0.03)
    few = dropping(0.999)
    assert [len(few.answering(t, cohort)) for t, cohort in enumerate(few)] == [1] * 40
    assert all(np.array_equal(dropping(0.0).answering(t, c), c) for t, c in enumerate(few))


def test_whether_a_client_drops_out_depends_on_no_other_client():
    cohorts = dropping(0.5)
    alone = [client for client in range(30) if client in cohorts.answering(3, np.array([client, 29 - client % 2]))]
    together = cohorts.answering(3, np.arange(28))
    assert set(together) <= set(alone)


@pytest.mark.parametrize("changes", [{}, {"local.steps": 9}, {"last_batch": "wrap"}])
def test_partial_work_makes_the_first_steps_of_the_plan(changes):
    whole, cut = (build("fedavg", partial_work=share, **changes).planner for share in (0.0, 0.6))
    pairs = [(whole.task(t, k), cut.task(t, k)) for t in range(40) for k in range(4)]
    for full, some in pairs:
        assert 1 <= some.num_steps <= full.num_steps
        assert (some.weight, some.num_samples) == (full.weight, full.num_samples)
        for a, b in zip(some.phases[0], full.phases[0], strict=False):
            assert torch.equal(a.indices, b.indices)
    stopped = [some.num_steps < full.num_steps for full, some in pairs if full.num_steps > 1]
    assert np.mean(stopped) == pytest.approx(0.6, abs=0.1)


def test_a_method_with_two_phases_finishes_the_same_share_of_both():
    planner = build(
        "fedrep",
        partial_work=1.0,
    ).planner
    whole = build(
        "fedrep",
    ).planner
    for k in range(4):
        for full, some in zip(whole.task(0, k).phases, planner.task(0, k).phases, strict=True):
            assert 1 <= len(some) < len(full) or len(full) == 1


def reference(setup, rounds):
    """FedAvg by hand: the clients that answer make the first steps of their plan."""
    samples, params, answered = setup.problem.samples, setup.start.params, []
    loss = plain.cross_entropy(plain.MLP, {}, samples.inputs, samples.labels)
    for t in range(rounds):
        clients = [int(client) for client in setup.cohorts.answering(t, setup.cohorts[t])]
        tasks = [setup.planner.task(t, client) for client in clients]
        batches = [[batch.indices for batch in task.phases[0]] for task in tasks]
        models = [plain.local_sgd(loss, params, some, 0.05, 0.9, 1e-3) for some in batches]
        params = plain.weighted_mean(models, [task.num_samples for task in tasks])
        answered.append(clients)
    return params, answered


def test_a_round_is_the_average_of_those_who_answered():
    ran = train("fedavg", rounds=4, dropout=0.5, partial_work=0.5, **SIX)
    params, answered = reference(ran.setup, 4)
    assert_close(ran.state.params, params, 1e-9)
    assert [row["contributors"] for row in ran.history] == answered
    assert [row["clients"] for row in ran.history] == [cohort.tolist() for cohort in ran.setup.cohorts]
    assert any(len(some) < 3 for some in answered)
    assert_different(ran.state.params, train("fedavg", rounds=4, dropout=0.5, **SIX).state.params)


def test_power_of_choice_takes_the_losses_of_the_present_model():
    """Round by round: the cohort of a round has the largest losses under the model that the round begins with."""
    keys = {**SIX, "participation": "power_of_choice", "candidates": 5, "clients_per_round": 2}
    chosen = train("fedavg", rounds=3, **keys).history
    for t in range(3):
        before = build("fedavg", **keys) if t == 0 else train("fedavg", rounds=t, **keys)
        setup, params = (before, before.start.params) if t == 0 else (before.setup, before.state.params)
        samples, asked = setup.problem.samples, []
        loss = plain.cross_entropy(plain.MLP, {}, samples.inputs, samples.labels)

        def losses(clients, loss=loss, params=params, setup=setup, asked=asked):
            held = [torch.from_numpy(setup.clients.train.part(int(client))) for client in clients]
            asked += [float(loss(params, indices)) for indices in held]
            return np.array(asked)

        assert chosen[t]["clients"] == setup.cohorts.choose(t, losses).tolist()
        assert len(set(asked)) == 5


CHOICES = [
    {"participation": "by_size", "dropout": 0.4},
    {"participation": "fixed", "cohorts": [[0, 1], [2, 3, 5]], "partial_work": 0.7},
    {"participation": "power_of_choice", "dropout": 0.3, "partial_work": 0.5},
]


@pytest.mark.parametrize("method", ["fednova", "scaffold", "feddyn", "fedrep", "fedfm"])
@pytest.mark.parametrize("keys", CHOICES, ids=lambda keys: keys["participation"])
def test_the_stacked_engine_agrees_with_the_sequential_one(method, keys):
    one, other = (train(method, rounds=3, engine=engine, **SIX, **keys) for engine in ("sequential", "stacked"))
    assert_close(one.state.params, other.state.params, 1e-9)
    for key in ("clients", "contributors", "bytes_up", "bytes_down"):
        assert [row[key] for row in one.history] == [row[key] for row in other.history]
    ratios = [[row.get("step_ratio", 1.0) for row in ran.history] for ran in (one, other)]
    assert ratios[0] == pytest.approx(ratios[1])


@pytest.mark.parametrize("keys", CHOICES, ids=lambda keys: keys["participation"])
def test_choices_that_do_not_look_at_losses_are_the_same_for_every_method(keys):
    one, other = (train(method, rounds=3, **SIX, **keys).history for method in ("fedavg", "scaffold"))
    same = [
        (a["clients"], a["contributors"]) == (b["clients"], b["contributors"]) for a, b in zip(one, other, strict=True)
    ]
    assert all(same) or keys["participation"] == "power_of_choice"


def test_losses_that_are_asked_for_count_as_traffic():
    quiet, asking = (
        train("fedavg", rounds=2, participation=part, **SIX).history for part in ("by_size", "power_of_choice")
    )
    model = quiet[1]["bytes_down"] // 3
    assert asking[1]["bytes_down"] == quiet[1]["bytes_down"] + 6 * model
    assert asking[1]["bytes_up"] == quiet[1]["bytes_up"] + 6 * 8


def test_a_method_that_trains_everyone_refuses_a_choice():
    with pytest.raises(Unsupported, match="method 'local_ce' trains every client in every round"):
        build("local_ce", participation="by_size")


UNSEEN = {"num_clients": 10, "clients_per_round": 3, "partition": "iid", "test_split": "holdout"}


def test_unseen_clients_never_train_and_count_in_no_formula():
    setup = build("scaffold", vectors(400), unseen=0.3, **UNSEEN)
    assert len(setup.unseen) == 3
    assert sorted([*setup.unseen, *setup.eligible]) == list(range(10))
    assert setup.problem.start.population == 7
    assert setup.planner.mean_samples == setup.clients.train.sizes()[setup.eligible].mean()
    trained = train("scaffold", vectors(400), unseen=0.3, rounds=6, **UNSEEN)
    assert not set(trained.setup.unseen) & {client for row in trained.history for client in row["clients"]}


def accuracy_by_hand(setup, params, client):
    samples, indices = setup.personal_test_samples, torch.from_numpy(setup.clients.part(client))
    features = plain.features(plain.MLP, params, {}, samples.inputs[indices], training=False)
    logits = features @ params["head.weight"].T + params["head.bias"]
    return 100 * float((logits.argmax(-1) == samples.labels[indices]).double().mean())


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_the_lines_of_clients_are_the_accuracies_of_the_global_model(engine):
    ran = train("fedavg", vectors(400), unseen=0.3, rounds=2, engine=engine, **UNSEEN)
    assert [record["client"] for record in ran.driver.clients] == list(range(10))
    for record in ran.driver.clients:
        client = record["client"]
        assert record["global_accuracy"] == pytest.approx(accuracy_by_hand(ran.setup, ran.state.params, client))
        assert record["test_samples"] == len(ran.setup.clients.part(client))
        assert record["unseen"] == (client in ran.setup.unseen)


def test_without_test_samples_of_their_own_clients_get_the_expected_accuracy():
    ran = train("fedavg", rounds=2)
    samples, params = ran.setup.test, ran.state.params
    features = plain.features(plain.MLP, params, {}, samples.inputs, training=False)
    right = (features @ params["head.weight"].T + params["head.bias"]).argmax(-1) == samples.labels
    by_class = np.array([100 * float(right[samples.labels == c].double().mean()) for c in range(5)])
    table = ran.setup.clients.train.table()
    for record, counts in zip(ran.driver.clients, table, strict=True):
        assert record["expected_accuracy"] == pytest.approx(float(counts @ by_class / counts.sum()))


def test_tuned_models_are_compared_before_and_after():
    config = {"unseen": 0.3, "rounds": 2, "evaluation.protocol": "ft", **UNSEEN}
    ran, plainly = (
        train("fedavg-ft", vectors(400), **config),
        train("fedavg", vectors(400), unseen=0.3, rounds=2, **UNSEEN),
    )
    untuned = {record["client"]: record["global_accuracy"] for record in plainly.driver.clients}
    assert {record["client"]: record["global_accuracy"] for record in ran.driver.clients} == untuned
    assert any(record["accuracy"] != record["global_accuracy"] for record in ran.driver.clients)


@pytest.mark.parametrize("method", ["fedper", "fedbn", "ditto", "local_ce", "fedrod"])
def test_methods_without_a_model_for_unseen_clients_are_refused_by_name(method):
    with pytest.raises(Unsupported, match=f"clients of method '{method}' predict with models of their own"):
        build(method, unseen=0.3, **UNSEEN, **({"model.norm": "batch"} if method == "fedbn" else {}))


def test_unseen_clients_need_test_samples_of_their_own():
    with pytest.raises(Unsupported, match=r"test_split=matched .* or test_split=holdout"):
        build("fedavg", unseen=0.3, clients_per_round=2)


def test_no_setting_changes_the_run_at_its_default():
    assert (
        configure("fedavg").table()
        == configure("fedavg", participation="uniform", dropout=0.0, partial_work=0.0, unseen=0.0).table()
    )
