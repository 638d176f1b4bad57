"""What every engine must do. An engine is judged from equal states, client by client, against the one local loop.

`check_*` raise AssertionError; the suite runs them over engines and methods, and over broken ones, which must fail.
"""

from dataclasses import replace
from functools import reduce

import torch

from fedblade.core.lengths import PhasePlan
from fedblade.core.outcome import StepLog, collect_client, train_client
from fedblade.core.phase import Sgd
from fedblade.core.state import MemoryStore, flatten
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.engines.base import MeasuredClient
from support.one_client import adapt_client
from support.small_federation import assert_same_bits, tasks

TOLERANCE = 1e-9
"""Of 1 + |x|: sums of many samples and running variances are large, and so is their rounding."""
LR = 0.05


def assert_near(found, expected, tolerance=TOLERANCE):
    """Same names, and numbers that differ by at most `tolerance`·(1 + |x|)."""
    assert found.keys() == expected.keys(), f"names: {sorted(found.keys() ^ expected.keys())[:4]}"
    for name, leaf in expected.items():
        torch.testing.assert_close(
            found[name].cpu(), leaf.cpu(), atol=tolerance, rtol=tolerance, check_dtype=False,
            msg=lambda m, n=name: f"{n}: {m}",
        )  # fmt: skip


def reference(setup, server, cohort, own, lr=LR):
    """Each client alone, in order."""
    return [train_client(setup.problem, server, task, own.get(task.client), lr) for task in cohort]


def check_train(engine, setup, server=None, states=None, cohort=None, lr=LR):
    """Sums, kept states, logs, bytes and progress of a round are those of the clients one by one."""
    server, own = server or setup.start, states or {}
    cohort = cohort or tasks(setup, server.round)
    expected = reference(setup, server, cohort, own, lr)
    store, seen = MemoryStore(), []
    for client, state in own.items():
        store.put(client, server.round - 1, state)
    outcome = engine.train(server, iter(cohort), store, lr, seen.append)
    sums = reduce(Sums.__add__, (r.sums for r in expected if r.sums is not None), Sums())
    assert outcome.sums.trees.keys() == sums.trees.keys(), "names of the sums"
    for name, tree in sums.trees.items():
        assert_near(outcome.sums[name], tree)
    for task, result in zip(cohort, expected, strict=True):
        check_state(store.get(task.client, server.round + 1), result.state)
    check_log(outcome.log, reduce(StepLog.__add__, (r.log for r in expected)))
    assert outcome.bytes_up == sum(r.bytes_up for r in expected), "bytes sent up"
    assert sorted(seen) == [task.client for task in cohort], "clients reported"
    return {task.client: r.state for task, r in zip(cohort, expected, strict=True) if r.state}


def check_state(found, expected):
    assert (found or {}).keys() == expected.keys(), "names of the kept state"
    assert_near(flatten(found or {}), flatten(expected))


def check_log(found, expected):
    assert found.means().keys() == expected.means().keys(), "names in the log"
    for name, value in expected.means().items():
        assert abs(found.means()[name] - value) <= 1e-8 * (1 + abs(value)), f"log of {name}"


def check_two_rounds(engine, setup):
    """The second round starts from the state and the client states that the reference leaves."""
    states = check_train(engine, setup)
    results = reference(setup, setup.start, tasks(setup), {})
    sums = reduce(Sums.__add__, (r.sums for r in results if r.sums is not None))
    server = setup.method.server(setup.start, sums).replace(round=1)
    check_train(engine, setup, server, states)


def check_inputs_untouched(engine, setup):
    before = {name: leaf.clone() for name, leaf in setup.start.flat().items()}
    engine.train(setup.start, tasks(setup), MemoryStore(), LR, lambda client: None)
    assert_same_bits(setup.start.flat(), before)


def over_real(view, rows):
    """Sum of rows [batch, …] over the samples that are not padding."""
    return rows.sum(0) if view.mask is None else torch.where(view.mask[:, None] > 0, rows, 0).sum(0)


def look(view):
    return {"z": over_real(view, view.features), "logits": over_real(view, view.logits.square())}


LOOK = (DataPass("z", look),)
SEEN = Sum(
    "seen", lambda view: {**view.passes["z"], "weight": view.weight + 0 * view.passes["z"]["z"].sum()}, 1e6, LOOK
)


def check_collect(engine, setup, sums=(SEEN,)):
    """An exchange's sums are those of the clients one by one, and nobody's state changes."""
    cohort = tasks(setup)
    expected = [collect_client(setup.problem, setup.start, task, None, sums) for task in cohort]
    store = MemoryStore()
    outcome = engine.collect(setup.start, iter(cohort), store, sums)
    total = reduce(Sums.__add__, (r.sums for r in expected))
    assert outcome.sums.trees.keys() == total.trees.keys(), "names of the sums"
    for name, tree in total.trees.items():
        assert_near(outcome.sums[name], tree)
    assert outcome.bytes_up == sum(r.bytes_up for r in expected), "bytes sent up"
    assert all(store.get(task.client, 1) is None for task in cohort), "states kept by an exchange"


def check_measure(engine, setup):
    """A pass over the test set adds up the features of the global model, and of clients' own, each on its samples."""
    network, start, order = setup.problem.network, setup.start, setup.test_order

    def expected(params, indices=order):
        inputs, _ = setup.test.batch(indices)
        z = network.features(params, start.buffers, inputs, training=False)
        return {"z": z.sum(0), "logits": network.output(params, start.fixed, z).logits.square().sum(0)}

    assert_near(engine.measure(start, setup.test, order, LOOK)["z"], expected(start.params))
    counts = tasks(setup)[0].counts
    beside = {} if setup.method.own.state is None else {setup.method.own.state: {}}
    own = {
        client: {name: leaf * (1 + client) for name, leaf in start.params.items() if not name.startswith("body.")}
        for client in (1, 2, 3)
    }
    parts = {1: order, 2: order[:7], 0: order[3:], 3: order[:1]}
    holders = {
        client: MeasuredClient(client, None if client == 0 else {"_personal": own[client], **beside}, counts)
        for client in parts
    }
    clients = ((holders[client], parts[client]) for client in parts)
    found = list(engine.measure_personal(start, clients, setup.test, LOOK))
    assert [client for client, _ in found] == list(parts), "order of the clients measured"
    for client, totals in found:
        assert_near(totals["z"], expected(start.params | own.get(client, {}), parts[client]))


def check_adapt(engine, setup, wanted=None):
    """Own models after tuning are those of the clients one by one, from what they keep, and nothing else changes."""
    chosen = setup.method.phases if wanted is None else wanted
    phases = tuple(replace(phase, epochs=1, sgd=Sgd(lr=0.02, momentum=0.5)) for phase in chosen)
    plans = tuple(PhasePlan(1, phase.steps, phase.paired, phase.track) for phase in phases)
    first = tasks(setup)
    trained = reference(setup, setup.start, first, {})
    states = {task.client: result.state for task, result in zip(first, trained, strict=True)}
    cohort = [setup.planner.task(1, task.client, plans, first_epoch=3) for task in tasks(setup)]
    before = {name: leaf.clone() for name, leaf in setup.start.flat().items()}
    found = dict(engine.adapt(setup.start, iter(cohort), states.get, LR, phases))
    assert found.keys() == {task.client for task in cohort}, "clients tuned"
    for task in cohort:
        expected = adapt_client(setup.problem, setup.start, task, states[task.client], LR, phases)
        check_state(found[task.client], expected.state)
    assert_same_bits(setup.start.flat(), before)


CHECKS = [check_train, check_two_rounds, check_inputs_untouched, check_collect, check_measure, check_adapt]
