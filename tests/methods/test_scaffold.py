"""SCAFFOLD."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.outcome import train_client
from fedblade.core.views import EndView, StepView
from fedblade.methods.scaffold import Drift, scaffold
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_different,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
)

LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def zeros(tree):
    return {n: torch.zeros_like(v) for n, v in tree.items()}


def reference(setup, norm, rounds, momentum=0.9, decay=1e-3, shrink=1.0, adaptive=True, held=()):
    """Option II with PyTorch's own optimiser: the correction joins the gradient before the optimiser sees it."""
    samples, params, buffers = setup.problem.samples, setup.start.params, setup.start.buffers
    c, own_c = zeros(params), [zeros(params) for _ in range(4)]
    for round_ in range(rounds):
        lr = 0.05 * shrink**round_
        models, statistics, sizes, changes = [], [], [], []
        for client in setup.cohorts[round_]:
            task, mine = setup.planner.task(round_, int(client)), own_c[client]
            own = {n: v.clone() for n, v in buffers.items()}
            loss = plain.cross_entropy(LAYERS[norm], own, samples.inputs, samples.labels)
            model = {n: v.clone().requires_grad_() for n, v in params.items()}
            optimiser = torch.optim.SGD(model.values(), lr=lr, momentum=momentum, weight_decay=decay)
            # How often a constant gradient of 1 would have been applied: the sum of its momentum buffers.
            applied = buffer = 0.0
            for batch in task.phases[0]:
                optimiser.zero_grad()
                loss(model, batch.indices).backward()
                for n, w in model.items():
                    w.grad = w.grad * (n not in held) + c[n] - mine[n]
                optimiser.step()
                buffer = momentum * buffer + 1
                applied += buffer if adaptive else 1
            models.append({n: v.detach() for n, v in model.items()})
            statistics.append(own)
            sizes.append(len(task.indices))
            own_c[client] = {n: mine[n] - c[n] + (params[n] - models[-1][n]) / (lr * applied) for n in params}
            changes.append({n: own_c[client][n] - mine[n] for n in params})
        params, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
        c = {n: c[n] + sum(change[n] for change in changes) / 4 for n in c}
    return params, buffers, c, own_c


def own_controls(ran):
    rounds = len(ran.history)
    empty = {"c": zeros(ran.setup.start.params)}
    return [(ran.driver._store.get(client, rounds) or empty)["c"] for client in range(4)]


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize("adaptive", [True, False])
def test_three_rounds_agree_with_a_plain_version(norm, cohort, adaptive):
    overrides = {"clients_per_round": cohort, "adaptive_division": adaptive, "model.norm": norm}
    ran = train("scaffold", rounds=3, **overrides)
    params, buffers, c, own = reference(ran.setup, norm, 3, adaptive=adaptive)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.buffers, buffers, 1e-9)
    assert_close(ran.state.extra["c"], c, 1e-9)
    for mine, expected in zip(own_controls(ran), own, strict=True):
        assert_close(mine, expected, 1e-9)


@pytest.mark.parametrize("adaptive", [True, False])
def test_clients_that_finish_some_of_their_steps_divide_by_the_steps_they_made(adaptive):
    ran = train("scaffold", rounds=3, adaptive_division=adaptive, partial_work=0.7)
    params, _, c, own = reference(ran.setup, "none", 3, adaptive=adaptive)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.extra["c"], c, 1e-9)
    for mine, expected in zip(own_controls(ran), own, strict=True):
        assert_close(mine, expected, 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_frozen_classifier_has_no_gradient_but_controls_and_decay(norm):
    ran = train("scaffold", rounds=3, clients_per_round=2, freeze_classifier=True, **{"model.norm": norm})
    params, _, c, _ = reference(ran.setup, norm, 3, held=("head.weight",))
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.extra["c"], c, 1e-9)
    assert c["head.weight"].abs().max() > 1e-6
    still = train("scaffold", freeze_classifier=True, weight_decay=0.0)
    assert_same_bits(
        {"head.weight": still.state.params["head.weight"]}, {"head.weight": still.setup.start.params["head.weight"]}
    )
    assert not torch.equal(still.state.params["head.bias"], still.setup.start.params["head.bias"])


def test_a_falling_rate_is_followed():
    ran = train("scaffold", rounds=3, **{"optimizer.schedule": "exp"})
    params, _, c, _ = reference(ran.setup, "none", 3, shrink=0.99)
    assert_close(ran.state.params, params, 1e-9)
    assert_close(ran.state.extra["c"], c, 1e-9)


def test_the_comparison_notices_a_wrong_rate():
    ran = train("scaffold", rounds=3)
    params, *_ = reference(ran.setup, "none", 3, shrink=0.9999)
    with pytest.raises(AssertionError, match="body"):
        assert_close(ran.state.params, params, 1e-9)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_its_first_round_is_fedavgs(norm, dtype):
    overrides = {"rounds": 1, "model.norm": norm, "dtype": dtype}
    a, b = train("scaffold", **overrides).state, train("fedavg", **overrides).state
    assert_same_bits(a.params, b.params)
    assert_same_bits(a.buffers, b.buffers)


def test_its_second_round_is_not():
    assert_different(train("scaffold").state.params, train("fedavg").state.params)


@pytest.mark.parametrize("cohort", [4, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_the_servers_control_is_the_mean_of_all_clients(cohort, dtype, tolerance):
    """Not weighted by samples; clients that never took part count as 0."""
    ran = train("scaffold", rounds=3, clients_per_round=cohort, dtype=dtype, **BATCH_NORM)
    assert len(set(ran.setup.clients.train.sizes())) > 1
    own = own_controls(ran)
    mean = {n: torch.stack([c[n] for c in own]).mean(0) for n in own[0]}
    assert_close(ran.state.extra["c"], mean, tolerance)


def test_control_has_the_type_of_the_parameters():
    ran = train("scaffold", dtype="float32")
    assert {leaf.dtype for tree in (ran.state.extra["c"], *own_controls(ran)) for leaf in tree.values()} == {
        torch.float32
    }


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_corrections_of_a_lone_client_cancel_forever(norm):
    overrides = {"partition": "iid", "num_clients": 1, "clients_per_round": 1, "rounds": 5, "model.norm": norm}
    lone, plainly = train("scaffold", **overrides), train("fedavg", **overrides)
    assert_close(lone.state.params, plainly.state.params, 1e-12)
    assert_close(lone.state.extra["c"], lone.driver._store.get(0, 5)["c"], 1e-12)
    assert max(leaf.abs().max() for leaf in lone.state.extra["c"].values()) > 1e-3


def test_divisions_agree_without_momentum():
    runs = [train("scaffold", rounds=3, momentum=0.0, adaptive_division=adaptive) for adaptive in (True, False)]
    assert_same_run(*runs)
    assert_same_bits(runs[0].state.flat(), runs[1].state.flat())


def test_divisions_differ_with_momentum():
    a, b = (train("scaffold", rounds=1, adaptive_division=adaptive).state.extra["c"] for adaptive in (True, False))
    assert_different(a, b)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_after_one_step_the_control_is_the_gradient_at_the_anchor(momentum):
    """Whatever the controls were before: c_k − c + (g + c − c_k) = g."""
    setup = build("scaffold", momentum=momentum, weight_decay=0.0)
    samples, params = setup.problem.samples, setup.start.params
    task = tasks(setup)[2]
    task = replace(task, phases=(task.phases[0][:1],))
    generator = torch.Generator().manual_seed(0)
    c, mine = (
        {n: torch.randn(v.shape, generator=generator, dtype=v.dtype) for n, v in params.items()} for _ in range(2)
    )
    state = train_client(setup.problem, setup.start.replace(extra={"c": c}), task, {"c": mine}, 0.05).state
    loss = plain.cross_entropy(plain.MLP, {}, samples.inputs, samples.labels)
    leaves = {n: v.clone().requires_grad_() for n, v in params.items()}
    gradient = torch.autograd.grad(loss(leaves, task.phases[0][0].indices), list(leaves.values()))
    assert_close(state["c"], dict(zip(leaves, gradient, strict=True)), 1e-12)


def test_clients_that_do_not_take_part_keep_their_control():
    runs = {rounds: train("scaffold", rounds=rounds, clients_per_round=2) for rounds in (1, 2)}
    first, second = own_controls(runs[1]), own_controls(runs[2])
    present = set(runs[2].history[1]["clients"])
    for client in range(4):
        (assert_different if client in present else assert_same_bits)(first[client], second[client])


def test_an_idle_client_keeps_its_control_and_sends_nothing():
    setup = build("scaffold")
    task = tasks(setup)[0]
    state = train_client(setup.problem, setup.start, task, None, 0.05).state
    idle = train_client(setup.problem, setup.start, replace(task, phases=((),), weight=0.0), state, 0.05)
    assert idle.sums is None
    assert_same_bits(idle.state["c"], state["c"])


def test_parts_that_stay_on_the_client_are_not_corrected():
    """A personal head has no control, neither on the clients nor on the server, and none is sent."""
    ran = train(replace(scaffold(), personal=("head",)), rounds=3, **BATCH_NORM)
    heads = {n for n in ran.state.params if n.startswith("head.")}
    for control in (ran.state.extra["c"], *own_controls(ran)):
        for name, leaf in control.items():
            assert bool((leaf != 0).any()) == (name not in heads), name
    sent = train_client(ran.setup.problem, ran.state, tasks(ran.setup)[0], None, 0.05).sums
    assert sent["c"].keys() == sent["delta"].keys() == ran.state.params.keys() - heads


def test_communication_is_doubled():
    a, b = (train(method, rounds=1).history[0] for method in ("scaffold", "fedavg"))
    numbers = 4 * sum(leaf.numel() for leaf in build().start.params.values()) * 8
    assert (a["bytes_up"] - b["bytes_up"], a["bytes_down"] - b["bytes_down"]) == (numbers, numbers)


def test_a_client_axis_may_be_added():
    """Under vmap term, update and sum give each client what it has alone."""
    method, clients, name = scaffold(), 3, "body.w"
    generator = torch.Generator().manual_seed(1)
    own, anchor, end = (torch.randn(clients, 4, 2, generator=generator) for _ in range(3))
    server = {"c": {name: torch.randn(4, 2, generator=generator)}}
    (control,) = (each for each in method.sums if each.name == "c")

    def views(c, start, w):
        common = {"params": {name: w}, "anchor": {name: start}, "server": server, "client": {"c": {name: c}}}
        rest = {"lr": 0.1, "effective_steps": 3.5, "num_steps": 2, "population": 9, "shared": frozenset((name,))}
        return (
            StepView(**{**dict.fromkeys(StepView.__dataclass_fields__), **common}),
            EndView(**{**dict.fromkeys(EndView.__dataclass_fields__), **common, **rest}),
        )

    def all_three(*leaves):
        step, finished = views(*leaves)
        new = method.client_update["c"](finished)
        return Drift().gradient(step)[name], new[name], control.of(finished)[name]

    stacked = torch.func.vmap(all_three)(own, anchor, end)
    for k in range(clients):
        for many, one in zip(stacked, all_three(own[k], anchor[k], end[k]), strict=True):
            torch.testing.assert_close(many[k], one, rtol=0, atol=0)
