"""Groups of clients: what they receive, their batches side by side, what they send and keep."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedblade.core.errors import NonFinite
from fedblade.core.method import model, zeros
from fedblade.core.one_client import receive
from fedblade.core.outcome import StepLog
from fedblade.core.plan import Batch
from fedblade.core.receive import receive_clients
from fedblade.core.registry import engines
from fedblade.core.state import MemoryStore
from fedblade.core.sums import Sum, Sums
from fedblade.core.terms import Term, TermValue
from fedblade.core.tree import state_split, tree_map, tree_split
from fedblade.engines import stacked
from fedblade.engines._client_axis import is_repeated
from fedblade.engines._group import longest_first
from fedblade.engines._layout import lay_out, side_by_side
from fedblade.engines._many_clients import ManyClients
from fedblade.engines.layers import StackedBody
from fedblade.losses import CrossEntropy
from fedblade.methods.fedavg import fedavg
from fedblade.personal import local_model
from support.conformance import LR, assert_near, check_state, check_train, check_two_rounds, reference
from support.small_federation import BATCH_NORM, build, tasks

CPU = torch.device("cpu")
BESIDE = {"client_state": {"own": model}, "client_update": {"own": local_model}}


def made(engine, method, **overrides):
    setup = build(method, **overrides)
    return engines.get(engine).make(setup.problem), setup


def error_of(engine, method, **overrides):
    trainer, setup = made(engine, method, **overrides)
    with pytest.raises(NonFinite) as caught:
        trainer.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
    return str(caught.value)


def sizes(**overrides):
    """Samples of each client of the small federation: all differ."""
    held = [int(task.counts.sum()) for task in tasks(build(**overrides))]
    assert len(set(held)) == len(held)
    return held


def at(found, value, otherwise=0.0):
    """`value` for the client that holds so many samples."""
    return lambda view: torch.where(view.counts.sum() == found, value, otherwise).double()


# Errors: the client with the least id, and what it would have sent or kept.


def with_sum(of, reduce="sum"):
    return replace(fedavg(), sums=(*fedavg().sums, Sum("odd", lambda view: {"x": of(view)}, 1e9, reduce=reduce)))


@pytest.mark.parametrize("client", range(4))
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("reduce", ["sum", "max", "each"])
def test_a_sum_that_is_not_finite_is_refused_with_the_name_of_its_client(reduce, value, client):
    method = with_sum(at(sizes()[client], value), reduce)
    message = error_of("stacked", method)
    assert f"client {client} produced a non-finite sum 'odd' in round 1" in message
    assert message == error_of("sequential", method)


def test_infinities_of_opposite_signs_do_not_hide_each_other():
    held = sizes()

    def of(view):
        return at(held[3], torch.inf)(view) - at(held[1], torch.inf)(view)

    message = error_of("stacked", with_sum(of))
    assert message.startswith("client 1 produced")
    assert message == error_of("sequential", with_sum(of))


def test_a_total_that_overflows_is_no_fault_of_a_client():
    """Every number is finite; what their sum is worth is the server's business, with both engines."""
    for engine in ("sequential", "stacked"):
        trainer, setup = made(engine, with_sum(lambda view: 1e308 * view.counts.sum().double().clamp(max=1.0)))
        outcome = trainer.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
        assert torch.isinf(outcome.sums["odd"]["x"])


def keeping(of):
    return replace(fedavg(), client_state={"own": zeros}, client_update={"own": of})


@pytest.mark.parametrize("bad", [(0,), (3,), (1, 2), (0, 3)])
def test_a_state_that_is_not_finite_is_refused_with_the_name_of_its_client(bad):
    held = sizes()

    def of(view):
        total = sum(at(held[client], torch.nan)(view) for client in bad)
        return tree_map(lambda leaf: leaf + total, view.params)

    message = error_of("stacked", keeping(of))
    assert f"client {bad[0]} would keep a non-finite 'own' after round 1" in message
    assert message == error_of("sequential", keeping(of))


def test_what_a_client_keeps_may_be_large():
    """The total of a float32 state overflows its type, the state does not."""
    method = keeping(lambda view: tree_map(lambda leaf: torch.full_like(leaf, 3e38), view.params))
    trainer, setup = made("stacked", method, dtype="float32")
    store = MemoryStore()
    trainer.train(setup.start, tasks(setup), store, LR, lambda client: None)
    assert all(bool((leaf == 3e38).all()) for leaf in store.get(2, 1)["own"].values())


def test_a_loss_that_is_not_finite_names_the_client_with_the_least_id():
    held, order = sizes(), [task.client for task in longest_first(tasks(build()))]
    late, early = next((a, b) for a in order for b in order if a < b and order.index(b) < order.index(a))

    class Odd(Term):
        name = "odd"

        def __call__(self, view):
            return TermValue(at(held[late], torch.nan)(view) + at(held[early], torch.nan)(view))

    method = replace(fedavg(), losses=(CrossEntropy(), Odd()))
    message = error_of("stacked", method)
    assert f"term 'odd' became non-finite on client {late} in round 1" in message
    assert message == error_of("sequential", method)


def test_tuned_models_that_are_not_finite_are_refused():
    trainer, setup = made("stacked", keeping(lambda view: tree_map(lambda leaf: leaf * torch.inf, view.params)))
    with pytest.raises(NonFinite, match="client 0 would keep a non-finite 'own'"):
        list(trainer.adapt(setup.start, tasks(setup), lambda client: None, LR, setup.method.phases))


# Sums: added group by group, in whatever order the groups train.


def apart():
    """Every way to reduce, with numbers that tell the clients from each other."""

    def of(view):
        return {"n": view.num_samples * torch.ones((), dtype=torch.float64), "bias": view.params["head.bias"]}

    sums = [Sum(f"by_{reduce}", of, 1e9, reduce=reduce) for reduce in ("sum", "max", "each")]
    return replace(fedavg(), sums=(*fedavg().sums, *sums))


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_groups_of_any_size_give_the_same(rows, monkeypatch):
    monkeypatch.setattr(stacked, "GROUP_SIZE", rows)
    for setting in ({}, {"weighting": "batches", **BATCH_NORM}, {"local.batch_size": 20, "local.last_batch": "drop"}):
        check_two_rounds(*made("stacked", apart(), **setting))


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_clients_that_are_kept_apart_come_in_ascending_order(rows, monkeypatch):
    monkeypatch.setattr(stacked, "GROUP_SIZE", rows)
    trainer, setup = made("stacked", apart())
    cohort = tasks(setup)
    assert [task.client for task in longest_first(cohort)] != [task.client for task in cohort]
    outcome = trainer.train(setup.start, cohort, MemoryStore(), LR, lambda client: None)
    assert outcome.sums["by_each"]["n"].tolist() == [float(task.counts.sum()) for task in cohort]


def test_arranging_moves_the_rows_that_are_kept_apart_and_nothing_else():
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    sums = Sums({"a": {"x": rows}, "b": {"x": rows}}, {"a": "each", "b": "sum"})
    found = sums.arranged([1, 0])
    assert found["a"]["x"].tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert found["b"]["x"] is rows


def test_numbers_of_clients_are_their_own():
    """Steps, effective steps, samples and weights differ between clients and reach sums and states."""

    def of(view):
        told = (view.num_samples, view.num_steps, view.effective_steps, view.weight, view.lr)
        return {str(i): torch.as_tensor(each, dtype=torch.float64) for i, each in enumerate(told)}

    told = replace(
        fedavg(),
        sums=(*fedavg().sums, Sum("told", of, 1e9, reduce="each")),
        client_state={"told": lambda view: {"0": torch.zeros((), dtype=torch.float64)}},
        client_update={"told": lambda view: {"0": of(view)["2"]}},
    )
    trainer, setup = made("stacked", told)
    cohort = tasks(setup)
    check_train(trainer, setup)
    outcome = trainer.train(setup.start, cohort, MemoryStore(), LR, lambda client: None)
    assert outcome.sums["told"]["1"].tolist() == [task.num_steps for task in cohort]
    assert outcome.sums["told"]["3"].tolist() == [task.weight for task in cohort]


def test_stored_states_hold_no_memory_of_their_group():
    trainer, setup = made("stacked", replace(fedavg(), personal=("head",), **BESIDE), persist=True)
    store = MemoryStore()
    trainer.train(setup.start, tasks(setup), store, LR, lambda client: None)
    for client in range(4):
        for tree in store.get(client, 1).values():
            assert all(leaf.untyped_storage().nbytes() == leaf.nbytes for leaf in tree.values())


# What a group receives.


def side_by_side_in(setup):
    network = setup.problem.network
    return ManyClients(setup.problem, StackedBody(network.body, network.stages))


@pytest.mark.parametrize("known", [(), (1,), (0, 1, 2, 3)])
def test_a_group_receives_what_its_clients_do(known):
    method = replace(fedavg(), personal=("head",), buffers="local", **BESIDE)
    setup = build(method, persist=True, **BATCH_NORM)
    cohort = longest_first(tasks(setup))
    kept = {k: each.state for k, each in enumerate(reference(setup, setup.start, tasks(setup), {})) if k in known}
    group = receive_clients(side_by_side_in(setup), setup.start, cohort, [kept.get(task.client) for task in cohort], LR)
    anchors, buffers = (tree_split(tree, len(cohort)) for tree in (group.anchor, group.buffers))
    momenta = tree_split(group.momentum or tree_map(torch.zeros_like, group.anchor), len(cohort))
    states = state_split(group.client, len(cohort))
    for k, task in enumerate(cohort):
        expected = receive(setup.problem, setup.start, task, kept.get(task.client), LR)
        assert_near(anchors[k], expected.anchor, 0.0)
        assert_near(buffers[k], expected.buffers, 0.0)
        check_state(states[k], expected.client)
        assert torch.equal(group.counts[k], task.counts)
        assert_near(momenta[k], expected.momentum or tree_map(torch.zeros_like, expected.anchor), 0.0)
    assert (group.momentum is None) == (not known)
    assert all(
        is_repeated(group.anchor[name]) for name in group.anchor if name.startswith("body.") and "norm" not in name
    )
    assert is_repeated(group.anchor["head.weight"]) == (not known)


def test_the_last_client_on_the_axis_still_shares_what_the_group_shared():
    """Else its numbers would be computed another way than those of the clients before."""
    setup = build()
    group = receive_clients(side_by_side_in(setup), setup.start, tasks(setup), [None] * 4, LR)
    assert all(is_repeated(leaf) for leaf in group.part(slice(1)).anchor.values())
    assert not is_repeated(torch.zeros(1, 3))


def test_what_a_group_receives_is_not_the_servers_memory():
    setup = build(**BATCH_NORM)
    group = receive_clients(side_by_side_in(setup), setup.start, tasks(setup), [None] * 4, LR)
    for name, leaf in group.anchor.items():
        assert leaf.data_ptr() != setup.start.params[name].data_ptr()


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("method", ["fedprox", "fedntd", "scaffold", "fedper+prox"])
def test_clients_train_in_a_callers_inference_mode(method, engine):
    """In the second round clients bring states that were made in inference mode."""
    results = []
    for inference in (False, True):
        trainer, setup = made(engine, method)
        with torch.inference_mode(inference):
            server, store = setup.start.replace(params=tree_map(torch.clone, setup.start.params)), MemoryStore()
            for number in range(2):
                cohort = [replace(task, round=number) for task in tasks(setup)]
                outcome = trainer.train(server.replace(round=number), cohort, store, LR, lambda client: None)
        results.append(outcome)
    assert_near(results[1].sums["delta"], results[0].sums["delta"], 0.0)


# Batches side by side.


def batch(start, size, draws=False, then=None):
    rows = torch.arange(start, start + size)
    return Batch(rows, rows[:, None] + torch.tensor([0.1, 0.2]) if draws else None, None, then)


def test_a_grid_holds_each_batch_at_its_position_and_masks_the_rest():
    positions = [(2, 1), (0, 0), (1, 1)]
    batches = [batch(10, 3, draws=True), batch(20, 1, draws=True), batch(30, 2, draws=True)]
    grid = lay_out(batches, positions, (3, 2), CPU)
    assert grid.indices.shape == grid.mask.shape == (3, 2, 3)
    for row, column in np.ndindex(3, 2):
        if (row, column) in positions:
            own = batches[positions.index((row, column))]
            size = len(own.indices)
            assert torch.equal(grid.indices[row, column, :size], own.indices)
            assert torch.equal(grid.draws[row, column, :size], own.draws)
            assert (grid.indices[row, column, size:] == own.indices[0]).all(), "padding repeats the first sample"
            assert grid.mask[row, column].tolist() == [place < size for place in range(3)]
        else:
            assert not grid.mask[row, column].any()
            assert grid.indices[row, column].tolist() == [10, 10, 10], "an existing sample"


def test_ticks_are_as_wide_as_their_widest_batch():
    """A last batch that all clients share is not padded, one that is shorter for some is masked."""
    first = [batch(0, 4), batch(4, 4), batch(8, 2)]
    second = [batch(20, 4), batch(24, 3), batch(27, 2)]
    third = [batch(40, 4)]
    ticks = side_by_side([first, second, third], CPU)
    assert [tuple(tick.indices.shape) for tick in ticks] == [(3, 4), (2, 4), (2, 2)]
    assert [tick.mask is None for tick in ticks] == [True, False, True]
    assert ticks[1].mask.tolist() == [[True] * 4, [True, True, True, False]]
    assert ticks[1].indices.tolist() == [[4, 5, 6, 7], [24, 25, 26, 24]]
    assert ticks[2].indices.tolist() == [[8, 9], [27, 28]]


def test_second_batches_of_a_step_are_side_by_side_too():
    ticks = side_by_side([[batch(0, 2, then=batch(5, 3))], [batch(10, 2, then=batch(15, 1))]], CPU)
    assert ticks[0].mask is None
    assert ticks[0].then.indices.tolist() == [[5, 6, 7], [15, 15, 15]]
    assert ticks[0].then.mask.tolist() == [[True] * 3, [True, False, False]]


def test_a_phase_without_a_step_has_no_ticks():
    assert side_by_side([(), ()], CPU) == ()


def test_a_log_of_no_steps_counts_the_idle():
    trainer, setup = made("stacked", "fedavg", **{"local.batch_size": 1000, "local.last_batch": "drop"})
    outcome = trainer.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
    assert outcome.sums == Sums()
    assert outcome.log == StepLog(
        {"count_idle_clients": 4.0, "count_skipped_singletons": 0.0},
        {"count_idle_clients": 0, "count_skipped_singletons": 0},
    )
