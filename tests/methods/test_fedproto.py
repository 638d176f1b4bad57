"""FedProto."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.outcome import train_client
from fedblade.core.problem import BUFFERS, PERSONAL
from fedblade.core.views import StepView
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedproto import fedproto
from support.small_federation import (
    BATCH_NORM,
    DIM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def loss_of(layers, buffers, samples, prototypes, strength):
    """Cross-entropy, and the distance to the class's prototype sample by sample."""
    entropy = plain.cross_entropy(layers, buffers, samples.inputs, samples.labels)

    def loss(params, indices):
        statistics = {name: leaf.clone() for name, leaf in buffers.items()}
        total = entropy(params, indices)
        z = plain.features(layers, params, statistics, samples.inputs[indices], training=True)
        pulls = [
            (row - prototypes[label]).square().sum() / DIM
            for row, label in zip(z, samples.labels[indices].tolist(), strict=True)
            if label in prototypes
        ]
        return total + strength * sum(pulls) / len(pulls) if pulls else total

    return loss


def reference(setup, norm, rounds, strength=1.0, weight="count", share=True):
    """Global model and prototypes, and the model each client ended its last round with."""
    layers, samples = LAYERS[norm], setup.problem.samples
    params, buffers, prototypes, kept = setup.start.params, setup.start.buffers, {}, {}
    for round_ in range(rounds):
        found, sizes, seen = [], [], {}
        for client in setup.cohorts[round_].tolist():
            task = setup.planner.task(round_, client)
            start = (params, buffers) if share else kept.get(client, (params, buffers))
            own = {name: leaf.clone() for name, leaf in start[1].items()}
            loss = loss_of(layers, own, samples, prototypes, strength)
            model = plain.local_sgd(loss, start[0], [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
            kept[client] = (model, own)
            found.append(kept[client])
            sizes.append(len(task.indices))
            labels = samples.labels[task.indices]
            z = plain.features(layers, model, own, samples.inputs[task.indices], training=False)
            for label in labels.unique().tolist():
                mine = z[labels == label]
                seen.setdefault(label, []).append((mine.mean(0), len(mine) if weight == "count" else 1))
        for label, parts in seen.items():
            prototypes = {**prototypes, label: sum(n * mean for mean, n in parts) / sum(n for _, n in parts)}
        if share:
            params, buffers = (plain.weighted_mean([each[i] for each in found], sizes) for i in (0, 1))
    return params, buffers, prototypes, kept


def assert_prototypes(state, expected, tolerance=1e-9):
    ours = state.extra["prototypes"]
    assert ours["has"].nonzero().flatten().tolist() == sorted(expected)
    for label, mean in expected.items():
        torch.testing.assert_close(ours["mean"][label], mean, rtol=0, atol=tolerance)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(("cohort", "weight"), [(4, "count"), (2, "count"), (2, "uniform")])
def test_three_rounds_with_shared_weights_agree_with_a_plain_version(norm, cohort, weight):
    knobs = {"lambda_proto": 0.7, "proto_weight": weight}
    ran = train("fedproto", rounds=3, clients_per_round=cohort, **knobs, **{"model.norm": norm})
    params, buffers, prototypes, _ = reference(ran.setup, norm, 3, 0.7, weight)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert_prototypes(ran.state, prototypes)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
def test_three_rounds_with_own_models_agree_with_a_plain_version(norm, cohort):
    ran = train("fedproto", rounds=3, clients_per_round=cohort, share_weights=False, **{"model.norm": norm})
    *_, prototypes, kept = reference(ran.setup, norm, 3, share=False)
    assert_prototypes(ran.state, prototypes)
    for client, (params, buffers) in kept.items():
        own = ran.driver._store.get(client, 3)
        assert_close(own[PERSONAL], params, 1e-9)
        assert_close(own.get(BUFFERS, {}), buffers, 1e-9)
    assert_same_bits(ran.state.params, ran.setup.start.params)


def test_the_comparison_notices_a_changed_knob():
    ran = train("fedproto", lambda_proto=1.0)
    for other in ({"strength": 1.01}, {"weight": "uniform"}):
        with pytest.raises(AssertionError, match="body"):
            assert_close(ran.state.params, reference(ran.setup, "none", 2, **other)[0], 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_without_the_term_shared_weights_are_fedavg(norm):
    setting = {"model.norm": norm, "clients_per_round": 2}
    assert_same_run(train("fedproto", lambda_proto=0.0, **setting), train("fedavg", **setting))
    measured_by_prototypes = train("fedproto", lambda_proto=0.0, inference="proto", **setting)
    assert_same_bits(measured_by_prototypes.state.params, train("fedavg", **setting).state.params)
    assert_different(train("fedproto", **setting).state.params, train("fedavg", **setting).state.params)


def test_without_the_term_own_models_are_local_training():
    """λ = 0 without shared weights: every client trains alone, from the same start and on its own batches."""
    ran = train("fedproto", lambda_proto=0.0, share_weights=False, rounds=3, clients_per_round=2, **BATCH_NORM)
    *_, kept = reference(ran.setup, "batch", 3, 0.0, share=False)
    for client, (params, _) in kept.items():
        assert_close(ran.driver._store.get(client, 3)[PERSONAL], params, 1e-9)
    assert all(row["bytes_up"] == 0 for row in ran.history)
    with_unused = train(
        replace(fedproto(share_weights=False), losses=fedavg().losses), rounds=3, clients_per_round=2, **BATCH_NORM
    )
    for client in kept:
        stores = [each.driver._store.get(client, 3)[PERSONAL] for each in (ran, with_unused)]
        assert_same_bits(*stores)


def test_the_term_is_silent_in_the_first_round_and_heard_in_the_second():
    silent, heard = (row["loss_proto"] for row in train("fedproto").history)
    assert silent == 0
    assert heard > 0


def test_a_class_nobody_in_the_cohort_holds_keeps_its_prototype():
    """The prototype stays bit for bit, and nothing stands in for a class that was never seen."""
    runs = [train("fedproto", rounds=rounds, clients_per_round=1) for rounds in (1, 2, 3)]
    kept = 0
    for before, after in pairwise(runs):
        task = after.setup.planner.task(after.state.round - 1, int(after.history[-1]["clients"][0]))
        old, new = before.state.extra["prototypes"], after.state.extra["prototypes"]
        absent = task.counts == 0
        kept += int((absent & old["has"]).sum())
        assert torch.equal(new["mean"][absent], old["mean"][absent])
        assert torch.equal(new["has"], old["has"] | ~absent)
        assert after.history[-1]["num_prototypes"] == int(new["has"].sum())
    assert kept > 0


def test_only_prototypes_of_held_classes_travel_without_shared_weights():
    ran = train("fedproto", share_weights=False, **BATCH_NORM)
    held = int((ran.setup.clients.train.table() > 0).sum())
    for row in ran.history:
        assert row["bytes_up"] == held * (DIM + 1) * 8
        assert row["bytes_down"] == 4 * NUM_CLASSES * (DIM * 8 + 1)


def prediction(mean, has, z):
    head = fedavg().head
    fields = {
        "features": z,
        "output": head({"head.weight": torch.ones(3, 2), "head.bias": torch.zeros(3)}, {}, z),
        "server": {"prototypes": {"mean": mean, "has": has}},
    }
    view = StepView(**{**dict.fromkeys(StepView.__dataclass_fields__), **fields})
    return fedproto(inference="proto").own.logits(view), view.logits


MEAN, Z = torch.tensor([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]]), torch.tensor([[0.0, 0.0], [3.0, 3.0]])


def test_the_nearest_prototype_is_predicted():
    logits, _ = prediction(MEAN, torch.ones(3, dtype=torch.bool), Z)
    assert logits.tolist() == [[0.0, -25.0, -162.0], [-18.0, -1.0, -72.0]]


def test_a_class_without_a_prototype_is_not_predicted():
    logits, _ = prediction(MEAN, torch.tensor([True, False, True]), Z)
    assert logits.tolist() == [[0.0, -torch.inf, -162.0], [-18.0, -torch.inf, -72.0]]


def test_the_head_predicts_while_there_is_no_prototype():
    logits, head = prediction(MEAN, torch.zeros(3, dtype=torch.bool), Z)
    assert torch.equal(logits, head)


@pytest.mark.parametrize("share", [True, False])
def test_own_predictions_are_measured_by_prototypes(share):
    """Accuracy of the clients' own models on the shared test set, from stored models and prototypes."""
    ran = train(replace(fedproto(share_weights=share, inference="proto"), accuracy_of="personal"), **BATCH_NORM)
    setup, hits = ran.setup, []
    inputs, labels = setup.test.batch(torch.arange(len(setup.test)))
    for client in range(4):
        own = ran.driver._store.get(client, 2) or {}
        model = (ran.state.params | own.get(PERSONAL, {}), ran.state.buffers | own.get(BUFFERS, {}))
        z = setup.problem.network.features(*model, inputs, training=False)
        nearest = torch.cdist(z, ran.state.extra["prototypes"]["mean"]).argmin(1)
        hits.append(100 * (nearest == labels).double().mean().item())
    assert ran.history[-1]["test_accuracy"] == pytest.approx(sum(hits) / 4, abs=1e-10)


def test_own_models_never_leave():
    setup = build("fedproto", share_weights=False, **BATCH_NORM)
    sums = train_client(setup.problem, setup.start, tasks(setup)[0], None, 0.05).sums
    assert set(sums.trees) == {"prototypes"}
