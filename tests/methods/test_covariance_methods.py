"""DeCov, Structured-DeCov and L_singular as methods and as `x+regulariser`."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.registry import methods, regularisers
from fedblade.losses import CrossEntropy, DeCov, Singular, StructuredDeCov
from support.small_federation import (
    BATCH_NORM,
    DIM,
    assert_close,
    assert_different,
    assert_same_run,
    build,
    tasks,
    train,
)

ADDED = ["decov", "stdecov", "lsingular"]
KNOBS = {
    "decov": {"normalize": False},
    "stdecov": {"groups": 4, "kappa": 0.2, "normalize": False},
    "lsingular": {"lambda_decorr": 0.02},
}


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("off", ["lambda_decorr", "balance"])
def test_a_term_switched_off_is_fedavg(added, off):
    base = train("fedavg", **BATCH_NORM)
    assert_same_run(train(added, **{off: 0.0}, **BATCH_NORM), base)
    assert_same_run(train(f"fedavg+{added}", **{f"method.{added}.{off}": 0.0}, **BATCH_NORM), base)


@pytest.mark.parametrize("added", ADDED)
def test_the_method_is_fedavg_plus_its_regulariser(added):
    for knobs in ({}, {"lambda_decorr": 0.3}, {"balance": 0.2}, KNOBS[added]):
        composed = {f"method.{added}.{key}": value for key, value in knobs.items()}
        assert_same_run(train(added, rounds=1, **knobs), train(f"fedavg+{added}", rounds=1, **composed))


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("balance", ["none", 0.1])
def test_a_term_switched_on_changes_the_model_and_no_stream(added, balance):
    with_term, without = train(f"fedetf+{added}", **{f"method.{added}.balance": balance}), train("fedetf")
    assert_different(with_term.state.params, without.state.params)
    for key in ("clients", "bytes_up"):
        assert [row[key] for row in with_term.history] == [row[key] for row in without.history]
    assert all(row[f"{added}_norm"] > 0 for row in with_term.history)
    assert all(("lambda_eff" in row) == (balance != "none") for row in with_term.history)


def test_knobs_reach_the_term():
    expected = {
        "decov": DeCov(weight=0.1),
        "stdecov": StructuredDeCov(weight=0.1, groups=16, kappa=0.0),
        "lsingular": Singular(weight=0.1),
    }
    for name, term in expected.items():
        assert methods.get(name).make().losses == (CrossEntropy(), term)
    chosen = methods.get("stdecov").make(lambda_decorr=0.3, groups=4, kappa=0.5, normalize=False, balance=0.2)
    assert chosen.losses[1] == StructuredDeCov(weight=0.3, groups=4, kappa=0.5, normalize=False, balance=0.2)
    assert methods.get("decov").make(normalize=False, balance=0.2).losses[1] == DeCov(
        weight=0.1, normalize=False, balance=0.2
    )
    assert methods.get("lsingular").make(0.4, 0.2).losses[1] == Singular(weight=0.4, balance=0.2)


def covariance(z):
    centred = z - z.mean(0)
    return centred.T @ centred / len(z)


def off_diagonal(z):
    C = covariance(z)
    return (C**2).fill_diagonal_(0).sum() / 2 / DIM**2


def across_quarters(z):
    inside = torch.block_diag(*[torch.ones(DIM // 4, DIM // 4, dtype=z.dtype)] * 4)
    return ((covariance(z) ** 2) * (1 - inside)).sum() / 2 / DIM**2


def eigenvalue_variance(z):
    C = covariance(z)
    return (C**2).sum() / DIM - (C.trace() / DIM) ** 2


CASES = [
    ("decov", {}, off_diagonal),
    ("stdecov", {"groups": 4}, across_quarters),
    ("lsingular", {}, eigenvalue_variance),
]


@pytest.mark.parametrize(("name", "knobs", "penalty"), CASES)
def test_methods_train_on_their_formula(name, knobs, penalty):
    setup = build(name, lambda_decorr=0.5, **knobs, **BATCH_NORM)
    task = replace(tasks(setup)[2], phases=(tasks(setup)[2].phases[0][:3],))
    samples = setup.problem.samples
    buffers = {n: v.clone() for n, v in setup.start.buffers.items()}
    data_loss = plain.cross_entropy(plain.MLP_BATCH_NORM, buffers, samples.inputs, samples.labels)

    def loss(params, indices):
        seen = {n: v.clone() for n, v in buffers.items()}
        z = plain.features(plain.MLP_BATCH_NORM, params, seen, samples.inputs[indices], training=True)
        return data_loss(params, indices) + 0.5 * penalty(z)

    expected = plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)
    ours = local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0]
    assert_close(ours.params, expected, 1e-11)


@pytest.mark.parametrize("added", ADDED)
def test_batches_of_one_sample_are_harmless(added):
    single = {"local.batch_size": 1, "local.epochs": 1, "rounds": 1}
    a, b = train(added, **single), train("fedavg", **single)
    assert all(row[f"loss_{added}"] == 0 for row in a.history)
    assert all(torch.equal(a.state.params[n], b.state.params[n]) for n in b.state.params)


def test_more_groups_than_features_are_refused():
    with pytest.raises(Misconfigured, match=f"groups=17 given; 1 to {DIM}"):
        train("stdecov", groups=17)
    with pytest.raises(Misconfigured, match="groups=0 given"):
        regularisers.get("stdecov").make(groups=0)
