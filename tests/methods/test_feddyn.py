"""FedDyn."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.outcome import train_client
from fedblade.core.views import EndView, StepView
from fedblade.methods.feddyn import Dynamic, feddyn
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_bits, build, tasks, train

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def zeros(tree):
    return {n: torch.zeros_like(v) for n, v in tree.items()}


def reference(setup, norm, rounds, alpha):
    """The penalised loss through autograd and PyTorch's own optimiser."""
    samples, params, buffers = setup.problem.samples, setup.start.params, setup.start.buffers
    h, own_h = zeros(params), [zeros(params) for _ in range(4)]
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in setup.cohorts[round_]:
            task, mine = setup.planner.task(round_, int(client)), own_h[client]
            own = {n: v.clone() for n, v in buffers.items()}
            loss = plain.cross_entropy(LAYERS[norm], own, samples.inputs, samples.labels)
            model = {n: v.clone().requires_grad_() for n, v in params.items()}
            optimiser = torch.optim.SGD(model.values(), lr=0.05, momentum=0.9, weight_decay=1e-3)
            for batch in task.phases[0]:
                optimiser.zero_grad()
                linear = sum((mine[n] * w).sum() for n, w in model.items())
                square = sum(((w - params[n]) ** 2).sum() for n, w in model.items())
                (loss(model, batch.indices) - linear + alpha / 2 * square).backward()
                optimiser.step()
            models.append({n: v.detach() for n, v in model.items()})
            statistics.append(own)
            sizes.append(len(task.indices))
            own_h[client] = {n: mine[n] - alpha * (models[-1][n] - params[n]) for n in params}
        h = {n: h[n] - alpha / 4 * sum(model[n] - params[n] for model in models) for n in h}
        mean, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
        params = {n: mean[n] - h[n] / alpha for n in params}
    return params, buffers, h, own_h


def own_states(ran):
    rounds = len(ran.history)
    empty = {"h": zeros(ran.setup.start.params)}
    return [(ran.driver._store.get(client, rounds) or empty)["h"] for client in range(4)]


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_three_rounds_agree_with_a_plain_version(norm, cohort, alpha):
    ran = train("feddyn", rounds=3, clients_per_round=cohort, alpha_dyn=alpha, **{"model.norm": norm})
    params, buffers, h, own = reference(ran.setup, norm, 3, alpha)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert_close(ran.state.extra["h"], h, 1e-9)
    for mine, expected in zip(own_states(ran), own, strict=True):
        assert_close(mine, expected, 1e-9)


def test_clients_that_finish_some_of_their_steps_change_their_h_by_what_they_moved():
    ran = train("feddyn", rounds=3, alpha_dyn=0.3, partial_work=0.7)
    params, _, h, own = reference(ran.setup, "none", 3, 0.3)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.extra["h"], h, 1e-9)
    for mine, expected in zip(own_states(ran), own, strict=True):
        assert_close(mine, expected, 1e-9)


def test_the_comparison_notices_a_changed_knob():
    ran = train("feddyn", rounds=2, alpha_dyn=0.3)
    params, *_ = reference(ran.setup, "none", 2, 0.30001)
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_local_problem_of_the_first_round_is_fedproxs(norm, dtype):
    overrides = {"model.norm": norm, "dtype": dtype}
    dyn, prox = build("feddyn", alpha_dyn=0.2, **overrides), build("fedprox", mu=0.2, **overrides)
    for task in tasks(dyn):
        sums = [train_client(s.problem, s.start, task, None, 0.05).sums for s in (dyn, prox)]
        for name in ("delta", "buffers", "counters"):
            assert_same_bits(sums[0][name], sums[1][name])


def test_the_local_problem_of_the_second_round_is_not():
    dyn, prox = build("feddyn", alpha_dyn=0.2), build("fedprox", mu=0.2)
    task = tasks(dyn)[2]
    own = train_client(dyn.problem, dyn.start, task, None, 0.05).state
    sums = [train_client(s.problem, s.start, task, own, 0.05).sums for s in (dyn, prox)]
    assert_different(sums[0]["delta"], sums[1]["delta"])


@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_the_servers_h_is_the_mean_of_all_clients(cohort, dtype, tolerance):
    """Not weighted by samples; clients that never took part count as 0."""
    ran = train("feddyn", rounds=3, clients_per_round=cohort, dtype=dtype, alpha_dyn=0.3, **BATCH_NORM)
    assert len(set(ran.setup.clients.train.sizes())) > 1
    own = own_states(ran)
    mean = {n: torch.stack([h[n] for h in own]).mean(0) for n in own[0]}
    assert_close(ran.state.extra["h"], mean, tolerance)
    assert max(leaf.abs().max() for leaf in mean.values()) > 100 * tolerance


def test_clients_that_do_not_take_part_keep_their_h():
    runs = {rounds: train("feddyn", rounds=rounds, clients_per_round=2) for rounds in (1, 2)}
    first, second = own_states(runs[1]), own_states(runs[2])
    present = set(runs[2].history[1]["clients"])
    for client in range(4):
        (assert_different if client in present else assert_same_bits)(first[client], second[client])


def test_statistics_are_those_of_fedprox_after_the_first_round():
    dyn = train("feddyn", rounds=1, alpha_dyn=0.2, **BATCH_NORM).state
    prox = train("fedprox", rounds=1, mu=0.2, **BATCH_NORM).state
    assert_same_bits(dyn.buffers, prox.buffers)
    assert_different(dyn.params, prox.params)


def test_parts_that_stay_on_the_client_have_no_h():
    ran = train(replace(feddyn(), personal=("head",)), rounds=3, **BATCH_NORM)
    heads = {n for n in ran.state.params if n.startswith("head.")}
    for h in (ran.state.extra["h"], *own_states(ran)):
        for name, leaf in h.items():
            assert bool((leaf != 0).any()) == (name not in heads), name
    assert all(torch.equal(ran.state.params[n], ran.setup.start.params[n]) for n in heads)


def test_the_unweighted_update_travels_too_and_nothing_comes_down():
    a, b = (train(method, rounds=1).history[0] for method in ("feddyn", "fedavg"))
    numbers = 4 * sum(leaf.numel() for leaf in build().start.params.values()) * 8
    assert (a["bytes_up"] - b["bytes_up"], a["bytes_down"] - b["bytes_down"]) == (numbers, 0)


def test_a_client_axis_may_be_added():
    """Under vmap term, update and sum give each client what it has alone."""
    method, clients, name = feddyn(0.2), 3, "body.w"
    generator = torch.Generator().manual_seed(1)
    own, anchor, end = (torch.randn(clients, 4, 2, generator=generator) for _ in range(3))
    (sent,) = (each for each in method.sums if each.name == "h")

    def all_three(h, start, w):
        common = {"params": {name: w}, "anchor": {name: start}, "client": {"h": {name: h}}}
        rest = {"population": 9, "shared": frozenset((name,))}
        step = StepView(**{**dict.fromkeys(StepView.__dataclass_fields__), **common})
        finished = EndView(**{**dict.fromkeys(EndView.__dataclass_fields__), **common, **rest})
        new = method.client_update["h"](finished)
        return Dynamic().gradient(step)[name], new[name], sent.of(finished)[name]

    stacked = torch.func.vmap(all_three)(own, anchor, end)
    for k in range(clients):
        for many, one in zip(stacked, all_three(own[k], anchor[k], end[k]), strict=True):
            torch.testing.assert_close(many[k], one, rtol=0, atol=0)


@pytest.mark.parametrize("alpha", [0.0, -0.1, float("nan"), float("inf")])
def test_nonsense_is_refused(alpha):
    with pytest.raises(Misconfigured, match=f"alpha_dyn={alpha}"):
        feddyn(alpha_dyn=alpha)
