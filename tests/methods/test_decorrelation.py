"""FedDecorr and `x+regulariser`, alone and balanced."""

from dataclasses import replace

import pytest

import support.plain_torch as plain
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_run, build, tasks, train

BASES = ["fedavg", "fedprox", "fedetf"]
ADDED = ["feddecorr", "lddecorr"]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("off", ["lambda_decorr", "decorr.balance"])
def test_a_term_switched_off_is_a_term_left_out(base, added, off):
    plain_run = train(base, **BATCH_NORM)
    key = f"method.{added}.{off}"
    assert_same_run(train(f"{base}+{added}", **{key: 0.0}, **BATCH_NORM), plain_run)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("balance", ["none", 0.1])
def test_a_term_switched_on_changes_the_model_and_no_stream(base, added, balance):
    with_term = train(f"{base}+{added}", **{f"method.{added}.decorr.balance": balance})
    without = train(base)
    assert_different(with_term.state.params, without.state.params)
    for a, b in zip(tasks(with_term.setup, 1), tasks(without.setup, 1), strict=True):
        assert all(x.indices.equal(y.indices) for x, y in zip(a.phases[0], b.phases[0], strict=True))
    assert [row["clients"] for row in with_term.history] == [row["clients"] for row in without.history]
    assert [row["bytes_up"] for row in with_term.history] == [row["bytes_up"] for row in without.history]


@pytest.mark.parametrize("knobs", [{}, {"lambda_decorr": 0.3}, {"decorr.scale": "paper"}])
def test_feddecorr_is_fedavg_plus_feddecorr(knobs):
    composed = {f"method.feddecorr.{key}": value for key, value in knobs.items()}
    assert_same_run(train("feddecorr", **knobs), train("fedavg+feddecorr", **composed))


def test_adding_fedblades_term_to_fedetf_is_fedblade_without_alignment():
    pba = {"pba.use_pa": False, "pba.use_fa": False}
    assert_same_run(train("fedblade", **pba, **BATCH_NORM), train("fedetf+lddecorr", **BATCH_NORM))
    assert_same_run(train("fedblade", gamma_pba=0.0), train("fedetf+lddecorr"))


def frobenius(z, scale):
    """L_FD by its definition on the d × d matrix, ddof 1."""
    Z = (z - z.mean(0)) / (z.var(0, correction=1) + 1e-8).sqrt()
    rows, dim = z.shape
    gram = Z.T @ Z
    if scale == "paper":
        return ((gram / rows) ** 2).sum() / dim**2
    return (gram**2).fill_diagonal_(0).sum() / (dim * (dim - 1)) / rows


def trained(setup, task):
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0]


def three_steps(task):
    return replace(task, phases=(task.phases[0][:3],))


def penalised(setup, task, penalty, weight):
    samples = setup.problem.samples
    buffers = {n: v.clone() for n, v in setup.start.buffers.items()}
    data_loss = plain.cross_entropy(plain.MLP_BATCH_NORM, buffers, samples.inputs, samples.labels)

    def loss(params, indices):
        seen = {n: v.clone() for n, v in buffers.items()}
        z = plain.features(plain.MLP_BATCH_NORM, params, seen, samples.inputs[indices], training=True)
        return data_loss(params, indices) + weight * penalty(z)

    return plain.local_sgd(loss, setup.start.params, [b.indices for b in task.phases[0]], 0.05, 0.9, 1e-3)


@pytest.mark.parametrize("scale", ["paper", "official"])
def test_feddecorr_trains_on_its_formula(scale):
    setup = build("feddecorr", lambda_decorr=0.1, **{"decorr.scale": scale}, **BATCH_NORM)
    task = three_steps(tasks(setup)[2])
    expected = penalised(setup, task, lambda z: frobenius(z, scale), 0.1)
    assert_close(trained(setup, task).params, expected, 1e-9)


def test_lddecorr_trains_on_its_formula():
    setup = build("fedavg+lddecorr", **{"method.lddecorr.lambda_decorr": 0.005}, **BATCH_NORM)
    task = three_steps(tasks(setup)[2])
    expected = penalised(setup, task, plain.log_det, 0.005)
    assert_close(trained(setup, task).params, expected, 1e-9)


@pytest.mark.parametrize("method", ["feddecorr", "fedavg+feddecorr"])
@pytest.mark.parametrize(("knob", "value"), [("var_eps", 1e-8), ("form", "auto"), ("balance", "none")])
def test_naming_a_default_of_the_decorr_table_changes_nothing(method, knob, value):
    """A table given in part keeps the method's own defaults for the rest, above all its kind."""
    assert_same_run(train(method, rounds=1, **{f"decorr.{knob}": value}), train(method, rounds=1))


def test_the_presets_scale_is_the_authors():
    """A method run by name uses `official`, N − 1 over N squared times N larger off the diagonal."""
    paper, official = (train("feddecorr", **{"decorr.scale": s}, rounds=1) for s in ("paper", "official"))
    default = train("feddecorr", rounds=1)
    assert_same_run(default, official)
    assert official.history[0]["loss_decorr"] > 2 * paper.history[0]["loss_decorr"]


@pytest.mark.parametrize("added", ADDED)
def test_batches_of_one_sample_are_harmless(added):
    """With single-sample batches the term is 0 throughout, so the run is the base's."""
    single = {"local.batch_size": 1, "local.epochs": 1}
    a, b = train(f"fedavg+{added}", **single), train("fedavg", **single)
    assert all(row["loss_decorr"] == 0 for row in a.history)
    assert {n for n in a.state.params if not a.state.params[n].equal(b.state.params[n])} == set()


def test_balanced_terms_log_their_strength():
    full_batches = {"local.last_batch": "drop"}
    rows = train("fedavg+lddecorr", **{"method.lddecorr.decorr.balance": 0.1}, **full_batches).history
    assert all(0 < row["lambda_eff"] < 1 for row in rows)
    assert all("lambda_eff" not in row for row in train("fedavg+lddecorr").history)


def test_balanced_runs_do_not_depend_on_the_weight():
    runs = [train("feddecorr", lambda_decorr=w, **{"decorr.balance": 0.2}) for w in (0.1, 3.0)]
    assert_same_run(*runs)
