"""FedExP."""

from dataclasses import replace
from functools import reduce
from operator import add

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.method import InitView
from fedblade.core.outcome import train_client
from fedblade.core.state import ServerState
from fedblade.core.views import EndView
from fedblade.methods.fedexp import fedexp
from support.one_client import sums_of
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_bits, tasks, train

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def paper(updates, sizes, mean, eps):
    spread = sum(size / sum(sizes) * update.norm() ** 2 for size, update in zip(sizes, updates, strict=True))
    return max(1.0, (spread / (2 * (mean.norm() ** 2 + eps))).item())


def released(updates, sizes, mean, eps):
    """Plain mean of the norms, over the norm of the mean; there are four clients in all."""
    return min(1.0, (sum(update.norm() for update in updates) / len(sizes) / 2 / (mean.norm() + 4 * eps)).item())


def reference(setup, norm, rounds, eps, rule=paper):
    samples, params, buffers = setup.problem.samples, setup.start.params, setup.start.buffers
    rates = []
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_]:
            task = setup.planner.task(round_, int(client))
            own = {n: v.clone() for n, v in buffers.items()}
            loss = plain.cross_entropy(LAYERS[norm], own, samples.inputs, samples.labels)
            model = {n: v.clone().requires_grad_() for n, v in params.items()}
            optimiser = torch.optim.SGD(model.values(), lr=0.05, momentum=0.9, weight_decay=1e-3)
            for batch in task.phases[0]:
                optimiser.zero_grad()
                loss(model, batch.indices).backward()
                optimiser.step()
            models.append({n: v.detach() for n, v in model.items()})
            statistics.append(own)
            sizes.append(len(task.indices))
        start = torch.nn.utils.parameters_to_vector(params.values())
        updates = [torch.nn.utils.parameters_to_vector(model.values()) - start for model in models]
        shares = [size / sum(sizes) for size in sizes]
        mean = sum(share * update for share, update in zip(shares, updates, strict=True))
        rates.append(rule(updates, sizes, mean, eps))
        averaged = plain.weighted_mean(models, sizes)
        params = {n: w + rates[-1] * (averaged[n] - w) for n, w in params.items()}
        buffers = plain.weighted_mean(statistics, sizes)
    return params, buffers, rates


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("eps", [1e-3, 0.5])
def test_three_rounds_agree_with_a_plain_version(norm, cohort, eps):
    ran = train("fedexp", rounds=3, clients_per_round=cohort, eps=eps, **{"model.norm": norm})
    params, buffers, rates = reference(ran.setup, norm, 3, eps)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert [row["server_rate"] for row in ran.history] == pytest.approx(rates, rel=1e-9)


def test_the_small_federation_uses_both_sides_of_the_maximum():
    rates = [row["server_rate"] for cohort in (4, 2) for row in train("fedexp", clients_per_round=cohort).history]
    assert min(rates) == 1
    assert max(rates) > 2


def test_the_comparison_notices_a_changed_knob():
    ran = train("fedexp", rounds=2, eps=1e-3)
    params, *_ = reference(ran.setup, "none", 2, 1.1e-3)
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_of_one_is_fedavg(dtype):
    exp, plainly = (train(m, dtype=dtype, **k, **BATCH_NORM) for m, k in (("fedexp", {"eps": 1e6}), ("fedavg", {})))
    assert [row["server_rate"] for row in exp.history] == [1.0, 1.0]
    assert_same_bits(exp.state.params, plainly.state.params)
    assert_same_bits(exp.state.buffers, plainly.state.buffers)


def test_statistics_are_averaged_however_far_the_weights_go():
    exp, plainly = (train(method, rounds=1, **BATCH_NORM) for method in ("fedexp", "fedavg"))
    assert exp.history[0]["server_rate"] > 1.5
    assert_different(exp.state.params, plainly.state.params)
    assert_same_bits(exp.state.buffers, plainly.state.buffers)


@pytest.mark.parametrize(("norm", "cohort"), [("none", 4), ("batch", 2)])
def test_the_released_rule_agrees_with_a_plain_version(norm, cohort):
    ran = train("fedexp", rounds=3, clients_per_round=cohort, eps=0.02, rule="released", **{"model.norm": norm})
    params, buffers, rates = reference(ran.setup, norm, 3, 0.02, released)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert [row["server_rate"] for row in ran.history] == pytest.approx(rates, rel=1e-9)
    assert min(rates) < 1


def test_the_released_rule_never_lengthens_and_survives_a_mean_of_zero():
    update = torch.arange(6, dtype=torch.float64)
    halved, move = one_round(0.0, [update] * 2, [1.0, 3.0], rule="released")
    assert halved == pytest.approx(0.5, rel=1e-12)
    torch.testing.assert_close(move, update / 2)
    for eps in (0.0, 1e-3):
        assert one_round(eps, [update, -update], [1.0, 1.0], rule="released")[0] == 1
    with pytest.raises(Misconfigured, match=r"unknown rule 'release'.*released"):
        fedexp(rule="release")


def one_round(eps, updates, weights, rule="paper"):
    """The rate and the move of a server that receives these updates of a weight matrix and a bias."""
    method = fedexp(eps, rule=rule)
    params = {"head.weight": torch.ones(2, 2, dtype=torch.float64), "head.bias": torch.ones(2, dtype=torch.float64)}
    init = InitView(params, dim=2, num_classes=2, population=len(updates))
    state = ServerState(params, {}, {}, {name: make(init) for name, make in method.server_state.items()})
    sums = []
    for client, (update, weight) in enumerate(zip(updates, weights, strict=True)):
        moved = {"head.weight": 1 + update[:4].reshape(2, 2), "head.bias": 1 + update[4:]}
        fields = {"params": moved, "buffers": {}, "anchor": params, "weight": weight, "shared": frozenset(params)}
        view = EndView(**{**dict.fromkeys(EndView.__dataclass_fields__), **fields})
        sums.append(sums_of(method.sums, view, client))
    after = method.server(state, reduce(add, sums))
    move = torch.cat([(after.params[n] - params[n]).flatten() for n in params])
    return method.gauges["server_rate"](after), move


@pytest.mark.parametrize("eps", [0.0, 1e-3])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_identical_updates_are_not_lengthened(clients, eps):
    update = torch.tensor([3.0, -1.0, 0.5, 2.0, -4.0, 0.25], dtype=torch.float64)
    rate, move = one_round(eps, [update] * clients, [0.3 + k for k in range(clients)])
    assert rate == 1
    torch.testing.assert_close(move, update, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("clients", "expected"), [(1, 1.0), (2, 1.0), (3, 1.5), (4, 2.0), (5, 2.5), (6, 3.0)])
@pytest.mark.parametrize("weight", [1.0, 0.7])
def test_orthogonal_updates_of_equal_length(clients, expected, weight):
    """Half the number of clients, and at least 1; the weights' scale does not matter."""
    updates = 1.7 * torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double()).Q
    rate, move = one_round(0.0, list(updates[:clients]), [weight] * clients)
    assert rate == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(move, expected * updates[:clients].mean(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 1e-3])
def test_opposite_updates_leave_the_model_where_it_is(eps):
    """The mean update is zero: with ε = 0 the formula divides by zero, and the rate is 1."""
    update = torch.arange(6, dtype=torch.float64)
    rate, move = one_round(eps, [update, -update], [1.0, 1.0])
    assert move.abs().max() == 0
    assert rate == (1 if eps == 0 else pytest.approx(55 / (2 * eps), rel=1e-12))


def test_one_number_more_travels_than_with_fedavg():
    exp, plainly = (train(method, **BATCH_NORM).history for method in ("fedexp", "fedavg"))
    for mine, other in zip(exp, plainly, strict=True):
        assert mine["bytes_up"] - other["bytes_up"] == 4 * 8
        assert mine["bytes_down"] == other["bytes_down"]


def test_parts_that_stay_on_the_client_do_not_count():
    ran = train(replace(fedexp(), personal=("head",)), **BATCH_NORM)
    task = tasks(ran.setup)[0]
    sent = train_client(ran.setup.problem, ran.state, task, None, 0.05).sums
    squares = sum((leaf / task.weight).square().sum() for name, leaf in sent["delta"].items())
    assert not any(name.startswith("head.") for name in sent["delta"])
    assert sent.scalar("squared_norm") == pytest.approx(task.weight * squares.item(), rel=1e-12)
    assert torch.equal(ran.state.params["head.weight"], ran.setup.start.params["head.weight"])


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_last_two_iterates_may_be_measured_together(norm, rounds):
    """The measured weights are the mean of two reference runs, one a round shorter; statistics are the last ones."""
    setting = {"clients_per_round": 2, "model.norm": norm}
    ran = train("fedexp", rounds=rounds, eval_average_last2=True, **setting)
    (last, buffers, _), (before, *_) = (reference(ran.setup, norm, n, 1e-3) for n in (rounds, rounds - 1))
    measured = ran.driver.evaluated_state
    assert_close(measured.params, {name: (last[name] + before[name]) / 2 for name in last}, 1e-9)
    assert_close(measured.buffers, buffers, 1e-9)
    assert_different(measured.params, ran.state.params)


def test_measuring_two_iterates_changes_neither_training_nor_traffic():
    ours, theirs = (train("fedexp", rounds=3, eval_average_last2=on, **BATCH_NORM) for on in (True, False))
    assert_same_bits(ours.state.params, theirs.state.params)
    assert_same_bits(ours.state.buffers, theirs.state.buffers)
    kept = ("server_rate", "loss_supervised", "bytes_up", "bytes_down")
    for mine, other in zip(ours.history, theirs.history, strict=True):
        assert [mine[key] for key in kept] == [other[key] for key in kept]
        assert mine["test_loss"] != other["test_loss"]


def test_the_mean_of_two_iterates_is_what_a_round_is_worth():
    ran = train("fedexp", eval_average_last2=True)
    network, test = ran.setup.problem.network, ran.setup.test
    inputs, labels = test.batch(torch.arange(len(test)))
    state = ran.driver.evaluated_state
    logits = network.output(state.params, {}, network.features(state.params, {}, inputs, training=False)).logits
    expected = torch.nn.functional.cross_entropy(logits, labels).item()
    assert ran.history[-1]["test_loss"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("eps", [-1e-3, float("nan"), float("inf")])
def test_nonsense_is_refused(eps):
    with pytest.raises(Misconfigured, match=f"eps={eps}"):
        fedexp(eps=eps)
