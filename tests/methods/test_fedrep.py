"""FedRep and its phase separation: head and body never train in the same step."""

from dataclasses import replace

import pytest
import torch

import support.plain_torch as plain
from fedblade.core.errors import Misconfigured
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as local_train
from fedblade.methods.fedrep import fedrep
from fedblade.runs import plan_phases
from support.one_client import adapt_client, personal_model
from support.small_federation import BATCH_NORM, assert_close, assert_different, assert_same_bits, build, tasks, train

SGD = (0.05, 0.9, 1e-3)
LAYERS = {"none": plain.MLP, "batch": plain.MLP_BATCH_NORM}


def part(tree, group):
    return {name: leaf for name, leaf in tree.items() if name.startswith(f"{group}.")}


def only(setup, phase, task):
    """What one of the two phases makes of the initial model."""
    task = replace(task, phases=(task.phases[phase],))
    received = receive(setup.problem, setup.start, task, None, 0.05)
    return local_train(setup.problem, received, (setup.method.phases[phase],))[0]


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_body_rests_while_the_head_trains_and_the_head_while_the_body_trains(norm):
    setup = build("fedrep", **{"model.norm": norm, "weight_decay": 0.1})
    start = setup.start
    for task in tasks(setup):
        first, second = (only(setup, phase, task) for phase in (0, 1))
        assert_same_bits(part(first.params, "body"), part(start.params, "body"))
        assert_same_bits(first.buffers, start.buffers)
        assert_different(part(first.params, "head"), part(start.params, "head"))
        assert_same_bits(part(second.params, "head"), part(start.params, "head"))
        assert all(not torch.equal(leaf, start.params[n]) for n, leaf in part(second.params, "body").items())
        if norm == "batch":
            assert_different(second.buffers, start.buffers)


def test_without_freezing_only_the_statistics_of_the_resting_body_go_on():
    setup = build("fedrep", freeze_bn=False, **BATCH_NORM)
    row = only(setup, 0, tasks(setup)[2])
    assert_same_bits(part(row.params, "body"), part(setup.start.params, "body"))
    steps = len(tasks(setup)[2].phases[0])
    assert row.buffers["body.layers.1.num_batches_tracked"] == steps
    assert all(not torch.equal(leaf, setup.start.buffers[name]) for name, leaf in row.buffers.items())


def plain_client(setup, layers, task, body, head, buffers, freeze_bn):
    """Two optimisers, one after the other."""
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels

    def loss_of(moments, still, training):
        def loss(params, indices):
            model = still | params
            z = plain.features(layers, model, moments, x[indices], training=training)
            logits = z @ model["head.weight"].T + model["head.bias"]
            return -torch.log_softmax(logits, 1)[torch.arange(len(indices)), y[indices]].mean()

        return loss

    batches = [[b.indices for b in phase] for phase in task.phases]
    head = plain.local_sgd(loss_of(buffers, body, not freeze_bn), head, batches[0], *SGD)
    return plain.local_sgd(loss_of(buffers, head, True), body, batches[1], *SGD), head


def one_optimiser(setup, layers, task, body, head, buffers, freeze_bn):
    """PyTorch's SGD over all parameters, at rate 0 for what rests: its momentum fills all the same."""
    x, y = setup.problem.samples.inputs, setup.problem.samples.labels
    model = {n: v.clone().requires_grad_() for n, v in (body | head).items()}
    rate, momentum, decay = SGD
    groups = [{"params": list(part(model, group).values()), "lr": 0.0} for group in ("body", "head")]
    optimiser = torch.optim.SGD(groups, lr=rate, momentum=momentum, weight_decay=decay)
    for trains, phase in ((1, task.phases[0]), (0, task.phases[1])):
        for place, group in enumerate(optimiser.param_groups):
            group["lr"] = rate if place == trains else 0.0
        for batch in phase:
            z = plain.features(layers, model, buffers, x[batch.indices], training=trains == 0 or not freeze_bn)
            loss = torch.nn.functional.cross_entropy(z @ model["head.weight"].T + model["head.bias"], y[batch.indices])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    done = {n: v.detach() for n, v in model.items()}
    return part(done, "body"), part(done, "head")


def plain_rounds(setup, layers, rounds, freeze_bn, client_update=plain_client):
    body, buffers = part(setup.start.params, "body"), dict(setup.start.buffers)
    heads = [part(setup.start.params, "head") for _ in range(4)]
    for round_ in range(rounds):
        bodies, statistics, sizes = [], [], []
        for client in map(int, setup.cohorts[round_]):
            task, moments = setup.planner.task(round_, client), {n: v.clone() for n, v in buffers.items()}
            model, heads[client] = client_update(setup, layers, task, body, heads[client], moments, freeze_bn)
            bodies.append(model)
            statistics.append(moments)
            sizes.append(len(task.indices))
        body, buffers = plain.weighted_mean(bodies, sizes), plain.weighted_mean(statistics, sizes)
    return body, buffers, heads


@pytest.mark.parametrize(("norm", "freeze_bn"), [("none", True), ("batch", True), ("batch", False)])
@pytest.mark.parametrize("epochs", [{}, {"E_h": 3, "E_b": 1}], ids=["auto", "given"])
def test_two_rounds_agree_with_a_plain_version(norm, freeze_bn, epochs):
    ran = train("fedrep", freeze_bn=freeze_bn, clients_per_round=3, **epochs, **{"model.norm": norm})
    body, buffers, heads = plain_rounds(ran.setup, LAYERS[norm], 2, freeze_bn)
    assert_close(part(ran.state.params, "body"), body, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    for client in range(4):
        params, _, _ = personal_model(ran.setup.problem, ran.state, ran.driver._store.get(client, 2))
        assert_close(part(params, "head"), heads[client], 1e-11)


@pytest.mark.parametrize(("norm", "freeze_bn"), [("none", True), ("batch", False)])
def test_momentum_that_is_carried_on_is_that_of_one_optimiser(norm, freeze_bn):
    knobs = {"freeze_bn": freeze_bn, "E_h": 2, "E_b": 1, "clients_per_round": 3, "model.norm": norm}
    ran = train("fedrep", carry_momentum=True, **knobs)
    body, buffers, heads = plain_rounds(ran.setup, LAYERS[norm], 2, freeze_bn, one_optimiser)
    assert_close(part(ran.state.params, "body"), body, 1e-11)
    assert_close(ran.state.buffers, buffers, 1e-11)
    for client in range(4):
        params, _, _ = personal_model(ran.setup.problem, ran.state, ran.driver._store.get(client, 2))
        assert_close(part(params, "head"), heads[client], 1e-11)
    assert_different(ran.state.params, train("fedrep", **knobs).state.params)


def test_without_momentum_there_is_nothing_to_carry_on():
    knobs = {"momentum": 0.0, "weight_decay": 0.1, **BATCH_NORM}
    carried, fresh = (train("fedrep", carry_momentum=carry, **knobs).state for carry in (True, False))
    assert_same_bits(carried.params | carried.buffers, fresh.params | fresh.buffers)


def test_epochs_are_the_runs_unless_given():
    auto, given = build("fedrep"), build("fedrep", E_h=3, E_b=1)
    for one, other in zip(tasks(auto), tasks(given), strict=True):
        per_epoch = len(one.phases[0]) // 2
        assert [len(phase) for phase in one.phases] == [2 * per_epoch, 2 * per_epoch]
        assert [len(phase) for phase in other.phases] == [3 * per_epoch, per_epoch]


def test_it_sends_what_fedper_sends():
    cost = [
        [(row["bytes_up"], row["bytes_down"]) for row in train(m, **BATCH_NORM).history] for m in ("fedrep", "fedper")
    ]
    assert cost[0] == cost[1]
    assert build("fedrep").problem.uploaded == build("fedper").problem.uploaded
    assert build("fedrep").method.accuracy_of == "personal"


def own_accuracy(ran, client, state):
    setup = ran.setup
    params, buffers, _ = personal_model(setup.problem, ran.state, state)
    inputs, labels = setup.test.batch(torch.from_numpy(setup.clients.part(client)))
    z = setup.problem.network.features(params, buffers, inputs, training=False)
    return 100 * (setup.problem.network.output(params, {}, z).logits.argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("protocol", ["ft", "final"])
def test_clients_adapt_once_more_before_they_are_measured_if_asked(protocol):
    overrides = {"evaluation.protocol": protocol, "lr": 0.02, **BATCH_NORM}
    plain_run, adapted = (train("fedrep", eval_adapt=flag, **overrides) for flag in (False, True))
    assert_same_bits(plain_run.state.params, adapted.state.params)
    setup = adapted.setup
    plans = plan_phases(setup.config, setup.method.phases)
    values = []
    for client in range(4):
        state = adapted.driver._store.get(client, 2)
        task = setup.planner.task(2, client, plans)
        tuned = adapt_client(setup.problem, adapted.state, task, state, 0.02, setup.method.phases).state
        values.append((own_accuracy(adapted, client, state), own_accuracy(adapted, client, tuned)))
    assert [row["accuracy"] for row in plain_run.driver.clients] == pytest.approx([before for before, _ in values])
    assert [row["accuracy"] for row in adapted.driver.clients] == pytest.approx([after for _, after in values])
    assert any(before != after for before, after in values)


@pytest.mark.parametrize("knob", [{"E_h": 0}, {"E_b": -1}])
def test_no_epochs_are_refused(knob):
    with pytest.raises(Misconfigured, match=r"E_[hb]=.*expected a whole number above 0"):
        fedrep(**knob)
