"""FedFM."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedfm import fedfm
from support.small_federation import (
    BATCH_NORM,
    DIM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    train,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def matching(z, label, anchors, tau, match):
    """The term of one sample."""
    cosine = {c: (plain.unit(z) * plain.unit(a)).sum() for c, a in anchors.items()}
    if match == "l2":
        return (2 - 2 * cosine[label]) / len(z)
    logits = torch.stack([value / tau for value in cosine.values()])
    return torch.logsumexp(logits, 0) - cosine[label] / tau


def class_means(layers, models, samples, held):
    """Means over all samples of the cohort; `models` has one (params, buffers) per client."""
    rows = [
        plain.features(layers, params, buffers, samples.inputs[indices], training=False)
        for (params, buffers), indices in zip(models, held, strict=True)
    ]
    z, labels = torch.cat(rows), torch.cat([samples.labels[indices] for indices in held])
    return {label: z[labels == label].mean(0) for label in labels.unique().tolist()}


def reference(setup, norm, rounds, strength=1.0, tau=0.1, t_start=1, anchor_model="global", match="contrast"):
    layers, samples = LAYERS[norm], setup.problem.samples
    params, buffers, anchors = setup.start.params, setup.start.buffers, {}
    for round_ in range(rounds):
        found, held = [], []
        for client in setup.cohorts[round_].tolist():
            task = setup.planner.task(round_, client)
            own = {name: leaf.clone() for name, leaf in buffers.items()}

            def loss(weights, indices, own=own, known=anchors, on=round_ >= t_start):
                statistics = {name: leaf.clone() for name, leaf in own.items()}
                total = plain.cross_entropy(layers, own, samples.inputs, samples.labels)(weights, indices)
                z = plain.features(layers, weights, statistics, samples.inputs[indices], training=True)
                parts = [
                    matching(row, label, known, tau, match)
                    for row, label in zip(z, samples.labels[indices].tolist(), strict=True)
                    if label in known
                ]
                return total + strength * sum(parts) / len(parts) if on and parts else total

            model = plain.local_sgd(loss, params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
            found.append((model, own))
            held.append(task.indices)
        sizes = [len(indices) for indices in held]
        params, buffers = (plain.weighted_mean([each[i] for each in found], sizes) for i in (0, 1))
        makers = [(params, buffers)] * len(held) if anchor_model == "global" else found
        anchors = {**anchors, **class_means(layers, makers, samples, held)}
    return params, buffers, anchors


def assert_anchors(state, expected):
    ours = state.extra["prototypes"]
    assert ours["has"].nonzero().flatten().tolist() == sorted(expected)
    for label, mean in expected.items():
        torch.testing.assert_close(ours["mean"][label], mean, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("anchor_model", ["global", "local"])
@pytest.mark.parametrize(("cohort", "match"), [(4, "contrast"), (2, "contrast"), (2, "l2")])
def test_two_rounds_agree_with_a_plain_version(norm, anchor_model, cohort, match):
    knobs = {"lambda_fm": 0.8, "tau": 0.3, "anchor_model": anchor_model, "match": match}
    ran = train("fedfm", clients_per_round=cohort, **knobs, **{"model.norm": norm})
    params, buffers, anchors = reference(ran.setup, norm, 2, 0.8, 0.3, 1, anchor_model, match)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert_anchors(ran.state, anchors)


@pytest.mark.parametrize(
    "other", [{"strength": 1.01}, {"tau": 0.11}, {"anchor_model": "local"}, {"match": "l2"}, {"t_start": 2}]
)
def test_the_comparison_notices_a_changed_knob(other):
    ran = train("fedfm")
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, reference(ran.setup, "none", 2, **other)[0], 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_without_the_term_it_is_fedavg(norm):
    setting = {"model.norm": norm, "clients_per_round": 2}
    assert_same_run(train("fedfm", lambda_fm=0.0, **setting), train("fedavg", **setting))


@pytest.mark.parametrize("anchor_model", ["global", "local"])
def test_anchors_that_nobody_uses_leave_no_trace(anchor_model):
    unused = replace(fedfm(anchor_model=anchor_model), losses=fedavg().losses)
    ours, theirs = train(unused, **BATCH_NORM), train("fedavg", **BATCH_NORM)
    assert_same_bits(ours.state.params, theirs.state.params)
    assert_same_bits(ours.state.buffers, theirs.state.buffers)


@pytest.mark.parametrize("t_start", [0, 1, 2, 3])
def test_the_term_waits_for_its_round_and_for_anchors(t_start):
    ran, plainly = (train(m, rounds=3, **k) for m, k in (("fedfm", {"t_start": t_start}), ("fedavg", {})))
    heard = [row["loss_fm"] > 0 for row in ran.history]
    assert heard == [round_ >= max(t_start, 1) for round_ in range(3)]
    compare = assert_same_bits if t_start == 3 else assert_different
    compare(ran.state.params, plainly.state.params)


def test_anchors_of_the_global_model_are_pooled_class_means():
    """With everybody in the cohort: means over the whole training set, in the new model."""
    ran = train("fedfm", rounds=1, **BATCH_NORM)
    samples = ran.setup.problem.samples
    z = ran.setup.problem.network.features(ran.state.params, ran.state.buffers, samples.inputs, training=False)
    expected = torch.stack([z[samples.labels == c].mean(0) for c in range(NUM_CLASSES)])
    torch.testing.assert_close(ran.state.extra["prototypes"]["mean"], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("anchor_model", ["global", "local"])
def test_a_class_nobody_in_the_cohort_holds_keeps_its_anchor(anchor_model):
    runs = [train("fedfm", rounds=n, clients_per_round=1, anchor_model=anchor_model) for n in (1, 2, 3)]
    kept = 0
    for before, after in pairwise(runs):
        task = after.setup.planner.task(after.state.round - 1, int(after.history[-1]["clients"][0]))
        old, new = before.state.extra["prototypes"], after.state.extra["prototypes"]
        absent = task.counts == 0
        kept += int((absent & old["has"]).sum())
        assert torch.equal(new["mean"][absent], old["mean"][absent])
        assert torch.equal(new["has"], old["has"] | ~absent)
    assert kept > 0


def test_an_exchange_costs_a_second_model_down():
    """Anchors cost C_k·(d + 1) numbers up either way; those of the global model need it on the clients."""
    fm, local, avg = (
        train(m, **k).history for m, k in (("fedfm", {}), ("fedfm", {"anchor_model": "local"}), ("fedavg", {}))
    )
    held = int((train("fedfm", rounds=1).setup.clients.train.table() > 0).sum())
    anchors, model = 4 * NUM_CLASSES * (DIM * 8 + 1), avg[0]["bytes_down"]
    for mine, other, plainly in zip(fm, local, avg, strict=True):
        assert mine["bytes_up"] == other["bytes_up"] == plainly["bytes_up"] + held * (DIM + 1) * 8
        assert other["bytes_down"] == plainly["bytes_down"] + anchors
        assert mine["bytes_down"] == other["bytes_down"] + model + anchors


@pytest.mark.parametrize("knobs", [{"t_start": -1}, {"tau": 0.0}, {"match": "cosine"}, {"lambda_fm": -1.0}])
def test_nonsense_is_refused(knobs):
    with pytest.raises(Misconfigured, match=next(iter(knobs))):
        fedfm(**knobs)
