"""FedBlade: what each knob does and, above all, does not do."""

from dataclasses import replace

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.plan import Batch
from fedblade.core.state import MemoryStore
from fedblade.methods.fedblade import Proto, fedblade
from support.small_federation import (
    BATCH_NORM,
    CNN,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    images,
    tasks,
    train,
)

OFF = {"lambda_decorr": 0.0, "gamma_pba": 0.0}


@pytest.mark.parametrize("model", ["mlp", "mlp_batch_norm", "cnn"])
def test_without_its_terms_it_is_fedetf(model):
    overrides = {"mlp": {}, "mlp_batch_norm": BATCH_NORM, "cnn": {**CNN, "dataset.augment": "crop_flip"}}[model]
    data = images() if model == "cnn" else None
    assert_same_run(train("fedblade", data, **OFF, **overrides), train("fedetf", data, **overrides))


def test_without_its_terms_it_sees_the_same_batches():
    blade, etf = build("fedblade"), build("fedetf")
    for round_ in range(2):
        for a, b in zip(tasks(blade, round_), tasks(etf, round_), strict=True):
            assert a.client == b.client
            assert all(torch.equal(x.indices, y.indices) for x, y in zip(a.phases[0], b.phases[0], strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lambda_decorr": 0.0}, {"decorr.balance": 0.0}),
        ({"gamma_pba": 0.0}, {"pba.use_pa": False, "pba.use_fa": False}),
    ],
)
def test_two_ways_to_switch_a_term_off(one, other):
    assert_same_run(train("fedblade", **one, **BATCH_NORM), train("fedblade", **other, **BATCH_NORM))


@pytest.mark.parametrize("knobs", [{}, {"gamma_pba": 0.0}, {"lambda_decorr": 0.0}])
def test_every_term_matters(knobs):
    etf = train("fedetf", **BATCH_NORM)
    assert_different(train("fedblade", **knobs, **BATCH_NORM).state.params, etf.state.params)


def second_round(**overrides):
    """The state after a round, in which prototypes exist, and a setup with the given knobs to go on with."""
    base = build("fedblade", **BATCH_NORM)
    sums = base.engine.train(base.start, tasks(base), MemoryStore(), 0.05, lambda client: None).sums
    state = base.method.server(base.start, sums).replace(round=1)
    return build("fedblade", momentum=0.0, weight_decay=0.0, **overrides, **BATCH_NORM), state


def gradient(client=2, **overrides):
    """Gradient of the first step of a client in the second round, read off a step of SGD without momentum."""
    setup, state = second_round(**overrides)
    task = setup.planner.task(1, client)
    one = replace(task, phases=((task.phases[0][0],),))
    row, trace = local_train(setup.problem, receive(setup.problem, state, one, None, 1.0))
    return {n: state.params[n] - leaf for n, leaf in row.params.items()}, trace[0]


def changed_groups(a, b):
    return {n.partition(".")[0] for n in a if not torch.allclose(a[n], b[n], rtol=0, atol=1e-13)}


def test_dropping_pa_changes_only_the_projector():
    full, _ = gradient()
    without, logged = gradient(**{"pba.use_pa": False})
    assert changed_groups(full, without) == {"projector"}
    assert "loss_pa" not in logged
    assert_same_bits(*({n: v for n, v in g.items() if n.startswith("body")} for g in (full, without)))


def test_dropping_fa_changes_only_the_extractor():
    full, _ = gradient()
    without, logged = gradient(**{"pba.use_fa": False})
    assert changed_groups(full, without) == {"body"}
    assert "loss_fa" not in logged
    assert_same_bits(*({n: v for n, v in g.items() if not n.startswith("body")} for g in (full, without)))


def test_dropping_decorrelation_changes_only_the_extractor():
    full, _ = gradient()
    without, logged = gradient(lambda_decorr=0.0)
    assert changed_groups(full, without) == {"body"}
    assert "loss_decorr" not in logged


def test_the_terms_enter_with_their_weights():
    """g(λ, γ) is linear in both weights."""
    base, decorr, align = gradient(**OFF)[0], gradient(gamma_pba=0.0)[0], gradient(lambda_decorr=0.0)[0]
    full = gradient(lambda_decorr=0.02, gamma_pba=3.0)[0]
    expected = {n: base[n] + 4 * (decorr[n] - base[n]) + 3 * (align[n] - base[n]) for n in base}
    assert_close(full, expected, 1e-11)


@pytest.mark.parametrize(
    ("growing", "now"),
    [
        ({"lambda_decorr": 0.02, "decorr.warmup": 3}, {"lambda_decorr": 0.01}),
        ({"decorr.balance": 0.4, "decorr.warmup": 3}, {"decorr.balance": 0.2}),
        ({"decorr.balance": 0.4, "decorr.warmup": 1}, {"decorr.balance": 0.4}),
    ],
)
def test_a_warm_up_of_w_rounds_has_two_parts_of_w_plus_one_in_the_second_round(growing, now):
    (a, logged), (b, expected) = gradient(**growing), gradient(**now)
    assert_same_bits(a, b)
    assert_same_bits(dict(logged), dict(expected))


def test_fa_without_the_distribution_factor_ignores_counts():
    counted, _ = gradient()
    plain, _ = gradient(**{"pba.distribution_factor": False})
    assert changed_groups(counted, plain) == {"body"}


def test_uniform_counts_make_the_distribution_factor_irrelevant():
    results = []
    for flag in (True, False):
        setup, state = second_round(**{"pba.distribution_factor": flag})
        task = setup.planner.task(1, 2)
        even = replace(task, counts=torch.full_like(task.counts, 4))
        results.append(local_train(setup.problem, receive(setup.problem, state, even, None, 0.05))[0].params)
    assert_close(*results, 1e-10)


def test_the_temperature_divides_the_cosines():
    warm, cold = (gradient(**{"pba.tau": tau})[1]["loss_fa"] for tau in (0.1, 0.5))
    assert warm != cold


def test_pa_may_be_a_mean_over_classes():
    total, mean = (gradient(**{"pba.pa_reduction": r})[1]["loss_pa"].item() for r in ("sum", "mean"))
    assert total == pytest.approx(5 * mean, rel=1e-12)


def test_pa_vanishes_when_projected_prototypes_are_parallel_to_their_vectors():
    setup, state = second_round()
    V = state.fixed["etf"]
    mean = torch.zeros_like(state.extra["prototypes"]["mean"])
    mean[:, :5] = torch.diag(torch.tensor([1.0, 2.0, 0.5, 3.0, 7.0], dtype=mean.dtype))
    weight = torch.zeros_like(state.params["projector.weight"])
    weight[:, :5] = V
    params = {
        **state.params,
        "projector.weight": weight,
        "projector.bias": torch.zeros_like(state.params["projector.bias"]),
    }
    has = torch.ones(5, dtype=torch.bool)
    aligned = state.replace(params=params, extra={"prototypes": {"mean": mean, "has": has}})
    task = setup.planner.task(1, 2)
    one = replace(task, phases=((task.phases[0][0],),))

    def loss(where):
        return local_train(setup.problem, receive(setup.problem, where, one, None, 0.0))[1][0]["loss_pa"].item()

    assert loss(aligned) < 1e-12
    turned = {**params, "projector.weight": -weight}
    assert loss(aligned.replace(params=turned)) == pytest.approx(5 * 0.5 * 4, rel=1e-6)


def test_samples_of_masked_classes_do_not_feel_fa():
    setup, state = second_round(lambda_decorr=0.0, **{"pba.use_pa": False})
    samples = setup.problem.samples
    task = setup.planner.task(1, 2)
    label = int(samples.labels[task.indices[0]])
    mine = task.indices[samples.labels[task.indices] == label]
    one = replace(task, phases=((Batch(mine[:4], None),),))
    prototypes = state.extra["prototypes"]
    masked = {"mean": prototypes["mean"], "has": prototypes["has"].clone()}
    masked["has"][label] = False
    hidden = state.replace(extra={"prototypes": masked})
    etf = build("fedetf", momentum=0.0, weight_decay=0.0, **BATCH_NORM)
    blade = local_train(setup.problem, receive(setup.problem, hidden, one, None, 0.05))
    plain = local_train(etf.problem, receive(etf.problem, state.replace(extra={}), one, None, 0.05))
    assert blade[1][0]["loss_fa"] == 0
    assert_same_bits(blade[0].params, plain[0].params)


def test_the_floor_reaches_both_losses():
    zero, one = (gradient(client=1, count_floor=floor)[1] for floor in (0, 1))
    assert zero["loss_supervised"] < one["loss_supervised"]
    assert zero["loss_fa"] < one["loss_fa"]


def test_floors_agree_on_a_client_with_every_class():
    (a, _), (b, _) = (gradient(client=2, count_floor=floor) for floor in (0, 1))
    assert_same_bits(a, b)


def test_the_feddecorr_ablation_swaps_one_term():
    """`FedBlade-FedDecorr`: L_LD replaced by FedDecorr `official` at 0.1."""
    swapped, logged = gradient(lambda_decorr=0.1, decorr={"kind": "feddecorr"})
    without, _ = gradient(lambda_decorr=0.0)
    assert changed_groups(swapped, without) == {"body"}
    setup, state = second_round(lambda_decorr=0.1, decorr={"kind": "feddecorr"})
    task = setup.planner.task(1, 2)
    inputs, _ = setup.problem.samples.batch(task.phases[0][0].indices)
    buffers = {n: v.clone() for n, v in state.buffers.items()}
    z = setup.problem.network.features(state.params, buffers, inputs, training=True)
    Z = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
    off = (Z.T @ Z).square().fill_diagonal_(0)
    assert logged["loss_decorr"].item() == pytest.approx((off.sum() / (16 * 15) / len(z)).item(), rel=1e-10)


def test_health_counters_are_in_the_history():
    rows = train("fedblade", **BATCH_NORM).history
    names = {"scale", "ld_centered", "count_cholesky_failures", "count_dead_features", "count_scale_clamped"}
    assert all(names | {"count_skipped_singletons", "num_prototypes"} <= row.keys() for row in rows)
    assert all(row["count_cholesky_failures"] == 0 for row in rows)


def test_the_centred_loss_is_the_loss_less_its_constant():
    _, logged = gradient()
    batch = 8
    constant = -(16 - (batch - 1)) * torch.tensor(1e-4, dtype=torch.float64).log()
    assert logged["ld_centered"].item() == pytest.approx((logged["loss_decorr"] - constant).item(), rel=1e-12)
    minimum = -(batch - 1) * torch.log(torch.tensor(16 / (batch - 1) + 1e-4, dtype=torch.float64))
    assert logged["ld_centered"] >= minimum


def test_momentum_keeps_part_of_a_prototype_and_none_of_what_there_is_not():
    """A class seen before moves by 1 − m of the way to its new mean, a new class has its mean."""
    first, second = [], []
    for kept in (first, second):
        setup = build("fedblade", clients_per_round=1, **{"proto.momentum": 0.75 if kept is second else 0.0})
        state = setup.start
        for round_, client in enumerate((1, 0)):
            task = setup.planner.task(round_, client)
            sums = setup.engine.train(state, [task], MemoryStore(), 0.0, lambda client: None).sums
            state = setup.method.server(state, sums).replace(round=round_ + 1)
            kept.append(state.extra["prototypes"])
    assert_same_bits(first[0], second[0])
    old, new, mixed = first[0]["mean"], first[1]["mean"], second[1]["mean"]
    seen = torch.from_numpy(setup.clients.train.table()[0] > 0)
    known, fresh = seen & first[0]["has"], seen & ~first[0]["has"]
    assert known.any()
    assert fresh.any()
    torch.testing.assert_close(mixed[known], 0.75 * old[known] + 0.25 * new[known], rtol=1e-13, atol=0)
    assert torch.equal(mixed[~known], new[~known])


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_a_momentum_that_never_moves_or_overshoots_is_refused(momentum):
    with pytest.raises(Misconfigured, match=r"proto\.momentum is .*from 0 to below 1"):
        fedblade(proto=Proto(momentum=momentum))
