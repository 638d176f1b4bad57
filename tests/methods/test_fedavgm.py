"""FedAvgM."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.state import ServerState
from fedblade.core.sums import Sums
from fedblade.methods.fedavgm import fedavgm
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    train,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
VARIANTS = ["heavy_ball", "ema"]
SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}


def local_round(setup, norm, round_, params, buffers):
    """Models, statistics and sizes of a round's clients, trained with PyTorch's own optimiser."""
    samples, models, statistics, sizes = setup.problem.samples, [], [], []
    for client in setup.cohorts[round_]:
        task = setup.planner.task(round_, int(client))
        own = {n: v.clone() for n, v in buffers.items()}
        loss = plain.cross_entropy(LAYERS[norm], own, samples.inputs, samples.labels)
        model = {n: v.clone().requires_grad_() for n, v in params.items()}
        optimiser = torch.optim.SGD(model.values(), **SGD)
        for batch in task.phases[0]:
            optimiser.zero_grad()
            loss(model, batch.indices).backward()
            optimiser.step()
        models.append({n: v.detach() for n, v in model.items()})
        statistics.append(own)
        sizes.append(len(task.indices))
    return models, statistics, sizes


def reference(setup, norm, rounds, variant, rho, eta_s):
    params, buffers = setup.start.params, setup.start.buffers
    velocity = {n: torch.zeros_like(v) for n, v in params.items()}
    for round_ in range(rounds):
        models, statistics, sizes = local_round(setup, norm, round_, params, buffers)
        mean, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
        for name, w in params.items():
            step = mean[name] - w
            velocity[name] = rho * velocity[name] + (step if variant == "heavy_ball" else (1 - rho) * step)
        rate = eta_s if variant == "heavy_ball" else 1.0
        params = {n: w + rate * velocity[n] for n, w in params.items()}
    return params, buffers, velocity


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize(("variant", "rho", "eta_s"), [("heavy_ball", 0.6, 0.7), ("ema", 0.5, 1.0)])
def test_three_rounds_agree_with_a_plain_version(norm, cohort, variant, rho, eta_s):
    knobs = {"variant": variant, "rho": rho, "eta_s": eta_s}
    ran = train("fedavgm", rounds=3, clients_per_round=cohort, **knobs, **{"model.norm": norm})
    params, buffers, velocity = reference(ran.setup, norm, 3, **knobs)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert_close(ran.state.extra["momentum"], velocity, 1e-9)


def test_the_comparison_notices_a_changed_knob():
    ran = train("fedavgm", rounds=3, rho=0.6)
    params, *_ = reference(ran.setup, "none", 3, "heavy_ball", 0.6001, 1.0)
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_without_momentum_it_is_fedavg(variant, norm, dtype):
    overrides = {"rounds": 3, "dtype": dtype, "model.norm": norm}
    assert_same_run(train("fedavgm", variant=variant, rho=0.0, **overrides), train("fedavg", **overrides))


@pytest.mark.parametrize("variant", VARIANTS)
def test_momentum_changes_the_result(variant):
    assert_different(train("fedavgm", variant=variant).state.params, train("fedavg").state.params)


def test_the_first_round_of_heavy_ball_is_fedavgs():
    a, b = (train(method, rounds=1, **BATCH_NORM) for method in ("fedavgm", "fedavg"))
    assert_same_bits(a.state.params, b.state.params)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_ema_is_heavy_ball_at_a_lower_rate(rho):
    overrides = {"rounds": 3, "rho": rho, **BATCH_NORM}
    ema = train("fedavgm", variant="ema", **overrides).state
    ball = train("fedavgm", variant="heavy_ball", eta_s=1 - rho, **overrides).state
    assert_close(ema.params, ball.params, 1e-12)
    assert_close(ema.buffers, ball.buffers, 1e-12)


@pytest.mark.parametrize(("variant", "limit"), [("ema", [2.0, -0.5]), ("heavy_ball", [20.0, -5.0])])
def test_momentum_converges_under_a_constant_update(variant, limit):
    """Mean update (2, −0.5), here of two clients of weight 1.5 in all; over 1 − 0.9 with `heavy_ball`."""
    method = fedavgm(variant, rho=0.9)
    zero = {"head.w": torch.zeros(2, dtype=torch.float64)}
    total = torch.tensor([3.0, -0.75], dtype=torch.float64)
    sums = Sums({"delta": {"head.w": total}, "weight": {"weight": torch.tensor(1.5)}})
    state = ServerState(zero, {}, {}, {"momentum": zero})
    for _ in range(400):
        before, state = state.params["head.w"], method.server(state, sums)
    expected = torch.tensor(limit, dtype=torch.float64)
    torch.testing.assert_close(state.extra["momentum"]["head.w"], expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(state.params["head.w"] - before, expected, atol=1e-9, rtol=0)


def test_parts_that_stay_on_the_client_have_no_momentum():
    ran = train(replace(fedavgm(), personal=("head",)), rounds=2, **BATCH_NORM)
    momentum = ran.state.extra["momentum"]
    assert momentum.keys() == ran.state.params.keys()
    for name, leaf in momentum.items():
        assert bool((leaf != 0).any()) == (not name.startswith("head.")), name
    assert_same_bits(
        *({n: v for n, v in s.params.items() if n.startswith("head.")} for s in (ran.state, ran.setup.start))
    )


def test_nothing_else_travels():
    cost = [(row["bytes_up"], row["bytes_down"]) for row in train("fedavgm", **BATCH_NORM).history]
    assert cost == [(row["bytes_up"], row["bytes_down"]) for row in train("fedavg", **BATCH_NORM).history]


def test_a_regulariser_may_be_added():
    knobs = {"variant": "ema", "rho": 0.0}
    a = train("fedavgm+feddecorr", **knobs, **{"method.feddecorr.lambda_decorr": 0.01})
    assert_same_run(a, train("fedavg+feddecorr", **{"method.feddecorr.lambda_decorr": 0.01}))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"variant": "nesterov"}, "unknown variant 'nesterov'"),
        ({"rho": 1.0}, "rho=1.0"),
        ({"rho": -0.1}, "rho=-0.1"),
        ({"rho": float("nan")}, "rho=nan"),
        ({"eta_s": 0.0}, "eta_s=0.0"),
        ({"eta_s": float("inf")}, "eta_s=inf"),
        ({"variant": "ema", "eta_s": 0.5}, "'ema' has no server rate"),
    ],
)
def test_nonsense_is_refused(knobs, message):
    with pytest.raises(Misconfigured, match=message):
        fedavgm(**knobs)
