"""FedRoD and its gradient separation: the personal head sends no gradient into the body."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.core.outcome import train_client
from fedblade.core.problem import PERSONAL
from fedblade.core.streams import Streams
from fedblade.core.views import StepView
from fedblade.heads import DualLinearHead
from fedblade.losses import ResidualCrossEntropy
from fedblade.methods.fedrod import fedrod
from support.one_client import personal_model
from support.small_federation import (
    BATCH_NORM,
    NUM_CLASSES,
    assert_close,
    assert_different,
    assert_same_bits,
    build,
    tasks,
    train,
)

SGD = (0.05, 0.9, 1e-3)
LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}
HEAD = DualLinearHead()


def personal(tree):
    return {name: leaf for name, leaf in tree.items() if name.startswith("personal_head.")}


def generic(tree):
    return {name: leaf for name, leaf in tree.items() if not name.startswith("personal_head.")}


def step_view(params, features, labels, mask=None):
    counts = torch.ones(NUM_CLASSES, dtype=torch.int64)
    return StepView(
        params, params, {}, HEAD, features, HEAD(params, {}, features), labels, counts, {}, {}, 0, mask=mask
    )


def parts(seed=0, batch=7):
    params = {n: v.double() for n, v in HEAD.init(16, NUM_CLASSES, Streams(seed)).params.items()}
    generator = torch.Generator().manual_seed(seed)
    params["personal_head.weight"] = torch.randn(NUM_CLASSES, 16, generator=generator, dtype=torch.float64)
    features = torch.randn(batch, 16, generator=generator, dtype=torch.float64)
    return params, features, torch.randint(NUM_CLASSES, (batch,), generator=generator)


def value_and_gradients(params, features, labels, mask=None):
    leaves = {n: v.clone().requires_grad_() for n, v in params.items()}
    features = features.clone().requires_grad_()
    value = ResidualCrossEntropy()(step_view(leaves, features, labels, mask)).value
    found = torch.autograd.grad(value, [*leaves.values(), features], allow_unused=True)
    return value.detach(), dict(zip([*leaves, "features"], found, strict=True))


def test_the_personal_loss_reaches_the_personal_head_alone():
    value, gradients = value_and_gradients(*parts())
    assert {name for name, found in gradients.items() if found is not None} == personal(gradients).keys()
    assert value > 0


def test_value_and_gradient_of_the_personal_loss_match_a_loop():
    params, features, labels = parts()
    value, gradients = value_and_gradients(params, features, labels)
    weight = params["personal_head.weight"].clone().requires_grad_()
    bias = params["personal_head.bias"].clone().requires_grad_()
    total = 0.0
    for z, label in zip(features, labels.tolist(), strict=True):
        powers = []
        for c in range(NUM_CLASSES):
            shared = (params["head.weight"][c] * z).sum() + params["head.bias"][c]
            powers.append((shared + (weight[c] * z).sum() + bias[c]).exp())
        total = total - (powers[label] / sum(powers)).log() / len(labels)
    expected = torch.autograd.grad(total, [weight, bias])
    assert_close(
        {"value": value, **personal(gradients)},
        {"value": total.detach(), "personal_head.weight": expected[0], "personal_head.bias": expected[1]},
        1e-12,
    )


@pytest.mark.parametrize("junk", [1e200, float("nan")])
def test_padding_changes_nothing(junk):
    params, features, labels = parts()
    exact = value_and_gradients(params, features, labels)
    padded = torch.cat((features, torch.full((3, 16), junk, dtype=torch.float64)))
    mask = torch.cat((torch.ones(7), torch.zeros(3)))
    value, gradients = value_and_gradients(params, padded, torch.cat((labels, torch.tensor([-7, 999, 0]))), mask)
    assert value == pytest.approx(exact[0].item(), rel=1e-14)
    assert_close(personal(gradients), personal(exact[1]), 1e-13)


def test_a_client_axis_gives_each_client_its_own_gradient():
    clients = [parts(seed) for seed in range(3)]
    params = {n: torch.stack([client[0][n] for client in clients]) for n in clients[0][0]}
    features, labels = (torch.stack([client[i] for client in clients]) for i in (1, 2))

    def loss(params, features, labels):
        return ResidualCrossEntropy()(step_view(params, features, labels)).value

    gradients, values = torch.func.vmap(torch.func.grad_and_value(loss))(params, features, labels)
    for i, client in enumerate(clients):
        value, alone = value_and_gradients(*client)
        assert values[i] == pytest.approx(value.item(), rel=1e-14)
        assert_close({n: v[i] for n, v in personal(gradients).items()}, personal(alone), 1e-14)
        assert all((v[i] == 0).all() for v in generic(gradients).values())


def trained(setup, task=None):
    task = tasks(setup)[2] if task is None else task
    return local_train(setup.problem, receive(setup.problem, setup.start, task, None, 0.05))[0]


def test_each_loss_trains_its_own_part_and_together_they_do_both_bit_for_bit():
    method = fedrod()
    both, balanced, personal_only = (
        trained(build(replace(method, losses=losses), weight_decay=0.0)).params
        for losses in (method.losses, method.losses[:1], method.losses[1:])
    )
    start = build(method).start.params
    assert_same_bits(personal(balanced), personal(start))
    assert_same_bits(generic(personal_only), generic(start))
    assert_same_bits(generic(both), generic(balanced))
    assert_different(personal(both), personal(start))
    assert_different(generic(both), generic(start))


def even(task):
    return replace(task, counts=torch.full_like(task.counts, 9))


def test_even_counts_and_no_personal_head_are_fedavg():
    alone, fedavg = build(replace(fedrod(), losses=fedrod().losses[:1])), build("fedavg")
    for task in tasks(fedavg):
        assert_close(generic(trained(alone, even(task)).params), trained(fedavg, task).params, 1e-12)


@pytest.mark.parametrize("setting", [{}, BATCH_NORM, {"clients_per_round": 2}], ids=["plain", "batch_norm", "partial"])
def test_without_balance_the_global_model_is_fedavgs_bit_for_bit(setting):
    ours, theirs = train("fedrod", gamma_bal=0.0, **setting), train("fedavg", **setting)
    assert_same_bits(generic(ours.state.params), theirs.state.params)
    assert_same_bits(ours.state.buffers, theirs.state.buffers)
    assert [row["test_accuracy"] for row in ours.history] == [row["test_accuracy"] for row in theirs.history]
    assert_different(generic(train("fedrod", **setting).state.params), theirs.state.params)


def plain_rounds(setup, layers, rounds, gamma, floor):
    """Two optimisers on two losses, the personal one without momentum and decay."""
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    shared, buffers = generic(setup.start.params), dict(setup.start.buffers)
    own = [personal(setup.start.params) for _ in range(4)]
    for round_ in range(rounds):
        models, statistics, sizes = [], [], []
        for client in map(int, setup.cohorts[round_]):
            task = setup.planner.task(round_, client)
            moments = {n: v.clone() for n, v in buffers.items()}
            model, mine = dict(shared), dict(own[client])
            velocity = {n: torch.zeros_like(v) for n, v in model.items()}
            prior = gamma * task.counts.clamp(min=floor).double().log()
            for batch in task.phases[0]:
                w, p = ({n: v.detach().requires_grad_() for n, v in tree.items()} for tree in (model, mine))
                z = plain.features(layers, w, moments, x[batch.indices], training=True)
                logits = z @ w["head.weight"].T + w["head.bias"]
                residual = z.detach() @ p["personal_head.weight"].T + p["personal_head.bias"]
                rows = torch.arange(len(batch.indices)), y[batch.indices]
                balanced = -torch.log_softmax(logits + prior, 1)[rows].mean()
                empirical = -torch.log_softmax(logits.detach() + residual, 1)[rows].mean()
                for (n, v), g in zip(model.items(), torch.autograd.grad(balanced, list(w.values())), strict=True):
                    velocity[n] = 0.9 * velocity[n] + g + 1e-3 * v
                    model[n] = v - 0.05 * velocity[n]
                for (n, v), g in zip(mine.items(), torch.autograd.grad(empirical, list(p.values())), strict=True):
                    mine[n] = v - 0.05 * g
            own[client] = mine
            models.append(model)
            statistics.append(moments)
            sizes.append(len(task.indices))
        shared, buffers = plain.weighted_mean(models, sizes), plain.weighted_mean(statistics, sizes)
    return shared, buffers, own


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("knobs", [{}, {"gamma_bal": 0.5, "count_floor": 2}], ids=["defaults", "given"])
def test_two_rounds_agree_with_a_plain_version(norm, knobs):
    ran = train("fedrod", clients_per_round=3, **knobs, **{"model.norm": norm})
    gamma, floor = knobs.get("gamma_bal", 1.0), knobs.get("count_floor", 1)
    shared, buffers, own = plain_rounds(ran.setup, LAYERS[norm], 2, gamma, floor)
    assert_close(generic(ran.state.params), shared, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    for client in range(4):
        params, _, _ = personal_model(ran.setup.problem, ran.state, ran.driver._store.get(client, 2))
        assert_close(personal(params), own[client], 1e-11)


def test_the_personal_head_starts_as_the_generic_one_and_never_leaves():
    setup = build("fedrod")
    start = setup.start.params
    assert torch.equal(start["personal_head.weight"], start["head.weight"])
    assert torch.equal(start["personal_head.bias"], start["head.bias"])
    for task in tasks(setup):
        result = train_client(setup.problem, setup.start, task, None, 0.05)
        assert result.state[PERSONAL].keys() == personal(start).keys()
        assert not personal({leaf: 0 for tree in result.sums.trees.values() for leaf in tree})
    cost = [[(row["bytes_up"], row["bytes_down"]) for row in train(m).history] for m in ("fedrod", "fedavg")]
    assert cost[0] == cost[1]


def test_the_server_predicts_with_the_generic_head_and_a_client_with_both():
    ran = train("fedrod", **{"evaluation.protocol": "gapa"})
    inputs, labels = ran.setup.test.batch(torch.arange(40))

    def accuracy(params, rows, *heads):
        z = plain.features(plain.MLP, params, {}, inputs[rows], training=False)
        logits = sum(z @ params[f"{head}.weight"].T + params[f"{head}.bias"] for head in heads)
        return 100 * (logits.argmax(1) == labels[rows]).double().mean().item()

    assert ran.history[-1]["test_accuracy"] == pytest.approx(accuracy(ran.state.params, slice(None), "head"), abs=1e-10)
    values = []
    for row in ran.driver.clients:
        params, _, _ = personal_model(ran.setup.problem, ran.state, ran.driver._store.get(row["client"], 2))
        mine = ran.setup.clients.part(row["client"])
        values.append(accuracy(params, mine, "head", "personal_head"))
        assert row["accuracy"] == pytest.approx(values[-1], abs=1e-10)
    assert ran.history[-1]["personal_accuracy"] == pytest.approx(sum(values) / 4, abs=1e-10)
    assert len(set(values)) > 1


def test_own_logits_are_the_sum_of_both_heads():
    params, features, labels = parts()
    view = step_view(params, features, labels)
    assert torch.equal(fedrod().own.logits(view), view.logits + HEAD.residual(params, features))
    assert torch.equal(fedrod().own.logits(view), HEAD.personal_logits(params, features))
