"""What a phase may say: rates, freed tensors, a limit of steps, kept statistics. Judged by `torch.optim.SGD`."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from fedblade.core.errors import Misconfigured
from fedblade.core.method import model
from fedblade.core.one_client import receive
from fedblade.core.one_client import train_alone as train
from fedblade.core.outcome import train_client
from fedblade.core.phase import Phase, Sgd
from fedblade.core.problem import MOMENTUM, PERSONAL
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import tree_clone
from fedblade.engines.base import MeasuredClient
from fedblade.methods.fedavg import fedavg
from fedblade.methods.fedetf import fedetf
from support.one_client import adapt_client
from support.small_federation import BATCH_NORM, assert_different, assert_same_bits, build, tasks

LR, MOMENTUM_OF_RUN, DECAY = 0.05, 0.9, 1e-3


def local(setup, task, own=None):
    return train(setup.problem, receive(setup.problem, setup.start, task, own, LR))


def with_phases(*phases, method=None, **changes):
    return replace(method or fedavg(), phases=phases, **changes)


def optimizer_for(leaves, groups):
    """One parameter group for each (names begin with, options); what no group names stays as it is."""
    chosen = [
        {"params": [leaf for name, leaf in leaves.items() if name.startswith(prefix)], **options}
        for prefix, options in groups
    ]
    return torch.optim.SGD(chosen, LR, MOMENTUM_OF_RUN, weight_decay=DECAY)


def by_torch(setup, batches, groups, start=None, training=True):
    """Train the initial model, or another, with torch's optimiser; returns (params, buffers)."""
    params, buffers = start or (setup.start.params, setup.start.buffers)
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    buffers, optimizer = tree_clone(buffers), optimizer_for(leaves, groups)
    for batch in batches:
        x, y = setup.problem.samples.batch(batch.indices, batch.draws)
        z = setup.problem.network.features(leaves, buffers, x, training=training)
        logits = F.linear(z, leaves["head.weight"], leaves["head.bias"])
        optimizer.zero_grad()
        F.cross_entropy(logits, y, reduction="none").mean().backward()
        optimizer.step()
    return {name: leaf.detach() for name, leaf in leaves.items()}, buffers


HEAD_OWN = {"lr": 0.2, "momentum": 0.3, "weight_decay": 0.1}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_group_rates_are_torchs_parameter_groups_bit_for_bit(dtype):
    setup = build(with_phases(Phase(group_sgd={"head": Sgd(**HEAD_OWN)})), dtype=dtype, **BATCH_NORM)
    task = tasks(setup)[2]
    params, buffers = by_torch(setup, task.phases[0], [("body.", {}), ("head.", HEAD_OWN)])
    row, _ = local(setup, task)
    assert_same_bits(row.params | row.buffers, params | buffers)


@pytest.mark.parametrize("key", HEAD_OWN)
def test_what_a_groups_rates_leave_out_is_the_runs(key):
    """Also where the phase says otherwise for the other groups."""
    one = {key: HEAD_OWN[key]}
    setup = build(with_phases(Phase(sgd=Sgd(momentum=0.5, lr=0.01), group_sgd={"head": Sgd(**one)})))
    task = tasks(setup)[1]
    params, _ = by_torch(setup, task.phases[0], [("body.", {"momentum": 0.5, "lr": 0.01}), ("head.", one)])
    assert_same_bits(local(setup, task)[0].params, params)


def test_a_phases_rates_hold_for_all_its_groups_and_for_no_other_phase():
    setup = build(with_phases(Phase(epochs=1, sgd=Sgd(**HEAD_OWN)), Phase(epochs=1)))
    task = tasks(setup)[2]
    first = by_torch(setup, task.phases[0], [("", HEAD_OWN)])
    params, _ = by_torch(setup, task.phases[1], [("", {})], start=first)
    assert_same_bits(local(setup, task)[0].params, params)


def test_a_rate_of_its_own_does_not_follow_the_rounds():
    """Otherwise the round's rate is used."""
    fixed, following = (build(with_phases(Phase(sgd=sgd))) for sgd in (Sgd(lr=0.02), Sgd()))
    task = tasks(fixed)[0]
    for setup, same in ((fixed, True), (following, False)):
        a, b = (
            train(setup.problem, receive(setup.problem, setup.start, task, None, lr))[0].params for lr in (0.05, 0.01)
        )
        (assert_same_bits if same else assert_different)(a, b)


def test_normalisation_layers_may_have_rates_of_their_own():
    phase = Phase(trains=("body", "head", "norm"), group_sgd={"norm": Sgd(lr=0.0, momentum=0.0)})
    setup = build(with_phases(phase), **BATCH_NORM)
    row, _ = local(setup, tasks(setup)[0])
    still = {name for name, leaf in row.params.items() if torch.equal(leaf, setup.start.params[name])}
    assert still == setup.problem.network.names_in(("norm",), row.params)


def test_rates_for_a_group_that_does_not_train_are_refused():
    with pytest.raises(Misconfigured, match=r"Phase\.group_sgd names 'head'"):
        Phase(trains=("body",), group_sgd={"head": Sgd(lr=0.1)})


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_steps_end_a_phase_early(steps):
    setup, whole = build(with_phases(Phase(steps=steps))), build()
    task = tasks(setup)[2]
    batches = tasks(whole)[2].phases[0][:steps]
    assert [b.indices.tolist() for b in task.phases[0]] == [b.indices.tolist() for b in batches]
    row, trace = local(setup, task)
    assert len(trace) == steps
    assert_same_bits(row.params, by_torch(setup, batches, [("", {})])[0])


def test_more_steps_than_there_are_change_nothing():
    limited, whole = build(with_phases(Phase(steps=1000))), build()
    assert tasks(limited)[2].num_steps == tasks(whole)[2].num_steps
    assert_same_bits(local(limited, tasks(limited)[2])[0].params, local(whole, tasks(whole)[2])[0].params)


def test_kept_statistics_are_used_and_left_alone():
    setup = build(with_phases(Phase(statistics="keep")), **BATCH_NORM)
    task = tasks(setup)[2]
    used = setup.start.replace(
        buffers={n: leaf + 0.5 if leaf.is_floating_point() else leaf + 3 for n, leaf in setup.start.buffers.items()}
    )
    row, _ = train(setup.problem, receive(setup.problem, used, task, None, LR))
    params, _ = by_torch(setup, task.phases[0], [("", {})], start=(used.params, used.buffers), training=False)
    assert_same_bits(row.params, params)
    assert_same_bits(row.buffers, used.buffers)


def test_statistics_are_updated_otherwise():
    setup = build(**BATCH_NORM)
    row, _ = local(setup, tasks(setup)[2])
    assert_different(row.buffers, setup.start.buffers)


TRACKED = {"client_state": {"own": model}}


def test_momentum_is_fresh_in_each_phase_and_none_of_it_reaches_another_track():
    phases = (Phase(epochs=1), Phase(epochs=1, track="own"), Phase(epochs=1), Phase(epochs=1, track="own"))
    setup = build(with_phases(*phases, **TRACKED))
    task = tasks(setup)[2]
    first = by_torch(setup, task.phases[0], [("", {})])
    expected, _ = by_torch(setup, task.phases[2], [("", {})], start=first)
    row, _ = local(setup, task)
    assert_same_bits(row.params, expected)
    assert_same_bits(row.tracks["own"].params, expected)


def test_momentum_that_persists_goes_on_in_the_next_phase_of_its_track():
    phases = (Phase(epochs=1), Phase(epochs=1, track="own"), Phase(epochs=1))
    setup = build(with_phases(*phases, **TRACKED), persist=True)
    task = tasks(setup)[2]
    row, _ = local(setup, task)
    assert_same_bits(row.params, by_torch(setup, (*task.phases[0], *task.phases[2]), [("", {})])[0])
    kept = train_client(setup.problem, setup.start, task, None, LR).state
    assert_same_bits(kept[MOMENTUM], row.momentum)


def freed(*phases, **settings):
    """FedETF's own model after tuning, beside the set-up."""
    setup = build(fedetf(), **settings)
    task = replace(tasks(setup)[2], phases=tasks(setup)[2].phases * len(phases))
    return setup, task, adapt_client(setup.problem, setup.start, task, None, LR, phases).state


def etf_loss(leaves, z, y, counts):
    """FedETF's loss written out; the class vectors are leaves too."""
    u = F.normalize(F.linear(z, leaves["projector.weight"], leaves["projector.bias"]), dim=1)
    prior = counts.clamp(min=1).to(z).log()
    return F.cross_entropy(leaves["scale"] * u @ leaves["etf"] + prior, y)


def test_a_freed_tensor_trains_as_torch_would():
    phase = Phase(frees=("etf",))
    setup, task, state = freed(phase, **BATCH_NORM)
    leaves = {n: leaf.clone().requires_grad_() for n, leaf in (setup.start.params | setup.start.fixed).items()}
    buffers, optimizer = tree_clone(setup.start.buffers), optimizer_for(leaves, [("", {})])
    for batch in task.phases[0]:
        x, y = setup.problem.samples.batch(batch.indices)
        z = setup.problem.network.features(leaves, buffers, x, training=True)
        optimizer.zero_grad()
        etf_loss(leaves, z, y, task.counts).backward()
        optimizer.step()
    for name, leaf in leaves.items():
        torch.testing.assert_close(state[PERSONAL][name], leaf.detach(), rtol=0, atol=1e-12)
    assert not torch.equal(state[PERSONAL]["etf"], setup.start.fixed["etf"])


def test_a_freed_tensor_alone_may_train():
    setup, _, state = freed(Phase(trains=(), frees=("etf",)))
    moved = {
        n for n, leaf in state[PERSONAL].items() if not torch.equal(leaf, (setup.start.params | setup.start.fixed)[n])
    }
    assert moved == {"etf"}


def test_the_servers_fixed_tensors_never_change():
    setup, task, _ = freed(Phase(frees=("etf",)))
    before = tree_clone(setup.start.fixed)
    received = receive(setup.problem, setup.start, task, None, LR, (Phase(frees=("etf",)),))
    train(setup.problem, received, (Phase(frees=("etf",)),))
    assert_same_bits(setup.start.fixed, before)
    assert_same_bits(received.fixed, before)
    assert torch.equal(received.anchor["etf"], before["etf"])


def test_without_being_freed_a_fixed_tensor_is_no_parameter():
    _, _, state = freed(Phase())
    assert "etf" not in state[PERSONAL]


def test_the_own_model_is_measured_with_the_freed_tensor():
    setup, task, state = freed(Phase(frees=("etf",)))
    look = (DataPass("logits", lambda view: {"logits": view.logits.sum(0)}),)
    mine = (MeasuredClient(2, state, task.counts), setup.test_order)
    ((_, found),) = setup.engine.measure_personal(setup.start, [mine], setup.test, look)
    x, _ = setup.test.batch(setup.test_order)
    own = state[PERSONAL]
    z = setup.problem.network.features(own, setup.start.buffers, x, training=False)

    def logits(etf):
        return setup.problem.network.output(own, {"etf": etf}, z).logits.sum(0)

    torch.testing.assert_close(found["logits"]["logits"], logits(own["etf"]), rtol=0, atol=1e-10)
    assert not torch.allclose(logits(own["etf"]), logits(setup.start.fixed["etf"]), atol=1e-6)


def test_a_later_stage_goes_on_with_the_freed_tensor_and_leaves_it_alone():
    """It belongs to the client from then on, though the later stage does not train it."""
    setup, task, state = freed(Phase(frees=("etf",)))
    later = adapt_client(setup.problem, setup.start, task, state, LR, (Phase(trains=("body",)),)).state
    assert torch.equal(later[PERSONAL]["etf"], state[PERSONAL]["etf"])
    unaware = {**state, PERSONAL: {n: leaf for n, leaf in state[PERSONAL].items() if n != "etf"}}
    other = adapt_client(setup.problem, setup.start, task, unaware, LR, (Phase(trains=("body",)),)).state
    assert not torch.equal(later[PERSONAL]["body.layers.0.weight"], other[PERSONAL]["body.layers.0.weight"])


def test_a_tuned_model_is_whole_and_the_method_sees_the_steps_it_made():
    """Client updates after tuning count the tuning's own steps, also where it has other phases than the method."""
    seen = []
    watched = replace(
        fedavg(),
        phases=(Phase(epochs=1, track="own"), Phase(epochs=1)),
        client_state={"own": model, "seen": model},
        client_update={"seen": lambda view: seen.append((view.num_steps, view.effective_steps)) or view.client["seen"]},
    )
    setup = build(watched, momentum=0.0, **BATCH_NORM)
    task = tasks(setup)[2]
    tuning = replace(task, phases=(task.phases[0],))
    state = adapt_client(setup.problem, setup.start, tuning, None, LR, (Phase(),)).state
    assert seen == [(len(task.phases[0]), float(len(task.phases[0])))]
    assert state[PERSONAL].keys() == setup.start.params.keys()
    assert state["_buffers"].keys() == setup.start.buffers.keys()


def test_what_no_phase_trains_does_not_travel_up():
    setup = build(with_phases(Phase(trains=("body",), epochs=1)), **BATCH_NORM)
    result = train_client(setup.problem, setup.start, tasks(setup)[0], None, LR)
    body = {name for name in setup.start.params if name.startswith("body.")}
    assert result.sums["delta"].keys() == body
    assert setup.problem.shared - setup.problem.uploaded == {"head.weight", "head.bias"}
    seen = Sum("seen", lambda view: {name: torch.zeros(()) for name in view.shared}, bound=1.0)
    watched = build(with_phases(Phase(trains=("body",), epochs=1), sums=(*fedavg().sums, seen)), **BATCH_NORM)
    sent = train_client(watched.problem, watched.start, tasks(watched)[0], None, LR).sums
    assert sent["seen"].keys() == setup.problem.uploaded
