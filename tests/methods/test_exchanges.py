"""Passes besides the round: before the run, after each aggregation, after the run."""

from dataclasses import replace

import pytest
import torch

from fedblade.core.method import Exchange
from fedblade.core.one_client import receive
from fedblade.core.sums import DataPass, Sum
from fedblade.methods.fedavg import fedavg
from fedblade.payloads import class_features
from support.small_federation import BATCH_NORM, CNN, NUM_CLASSES, assert_same_bits, build, images, tasks, train

COUNTS = Sum("counts", lambda view: {"n": view.counts}, bound=1e6, by_class=True)


def add_counts(state, sums):
    """Remember how many samples answered, and in which rounds."""
    old = state.extra["log"]
    answered = sums["counts"]["n"].sum().reshape(1)
    return state.replace(extra={**state.extra, "log": {"n": torch.cat([old["n"], answered])}})


def empty(view):
    return {"n": torch.zeros(0, dtype=torch.float64)}


def with_exchanges(*exchanges):
    return replace(fedavg(), exchanges=exchanges, server_state={"log": empty}, broadcast=())


def counted(when, clients="all"):
    return Exchange(when, (COUNTS,), add_counts, clients)


def answered(ran):
    return ran.state.extra["log"]["n"].tolist()


@pytest.mark.parametrize(("when", "times"), [("before_run", 1), ("after_round", 3), ("after_run", 1)])
def test_an_exchange_with_everybody_happens_when_it_says(when, times):
    ran = train(with_exchanges(counted(when)), rounds=3, clients_per_round=2)
    assert answered(ran) == [150.0] * times


def test_an_exchange_with_the_cohort_asks_the_cohort():
    ran = train(with_exchanges(counted("after_round", "cohort")), rounds=3, clients_per_round=2)
    sizes = ran.setup.clients.train.sizes()
    assert answered(ran) == [float(sizes[row["clients"]].sum()) for row in ran.history]


def test_exchanges_do_not_disturb_training():
    exchanges = tuple(counted(when) for when in ("before_run", "after_round", "after_run"))
    ran, plain = train(with_exchanges(*exchanges), **BATCH_NORM), train(**BATCH_NORM)
    assert_same_bits(ran.state.params, plain.state.params)
    assert_same_bits(ran.state.buffers, plain.state.buffers)
    assert [row["test_loss"] for row in ran.history] == [row["test_loss"] for row in plain.history]


FEATURES = DataPass("z", lambda view: {"sum": view.features.sum(0)})
SEEN = Sum("seen", lambda view: view.passes["z"], bound=1e6, passes=(FEATURES,))


def remember(state, sums):
    return state.replace(extra={"seen": dict(sums["seen"])})


def test_an_exchange_after_the_round_sees_the_new_global_model():
    method = replace(
        fedavg(),
        exchanges=(Exchange("after_round", (SEEN,), remember),),
        server_state={"seen": lambda view: {"sum": torch.zeros(view.dim, dtype=torch.float64)}},
    )
    ran = train(method, rounds=1, **BATCH_NORM)
    network, samples = ran.setup.problem.network, ran.setup.problem.samples
    inputs, _ = samples.batch(torch.arange(len(samples)))
    z = network.features(ran.state.params, ran.state.buffers, inputs, training=False)
    torch.testing.assert_close(ran.state.extra["seen"]["sum"], z.sum(0), rtol=0, atol=1e-10)


def test_an_exchange_before_the_run_sees_the_initial_model():
    method = replace(
        fedavg(),
        exchanges=(Exchange("before_run", (SEEN,), remember),),
        server_state={"seen": lambda view: {"sum": torch.zeros(view.dim, dtype=torch.float64)}},
    )
    ran = train(method)
    start, network, samples = ran.setup.start, ran.setup.problem.network, ran.setup.problem.samples
    z = network.features(start.params, start.buffers, samples.inputs, training=False)
    torch.testing.assert_close(ran.state.extra["seen"]["sum"], z.sum(0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("when", ["before_run", "after_round", "after_run"])
def test_what_an_exchange_sends_is_counted(when):
    """Every byte up is in the history, whenever it was sent."""
    ran, plain = train(with_exchanges(counted(when))), train()
    held = int((ran.setup.clients.train.table() > 0).sum())
    times = {"before_run": 1, "after_round": 2, "after_run": 1}[when]
    total = sum(row["bytes_up"] for row in ran.history) - sum(row["bytes_up"] for row in plain.history)
    assert total == times * held * 8


@pytest.mark.parametrize("when", ["after_round", "after_run"])
def test_the_model_an_exchange_needs_is_counted_down(when):
    """A client cannot look at the aggregated model without receiving it; counts alone need no model."""
    looks = Sum("seen", lambda view: view.passes["looks"], bound=1e6, passes=(DataPass("looks", class_features),))
    exchange = counted(when)
    ran, plain = train(with_exchanges(replace(exchange, sums=(*exchange.sums, looks)))), train()
    blind = train(with_exchanges(exchange))
    assert [row["bytes_down"] for row in blind.history] == [row["bytes_down"] for row in plain.history]
    model = sum(v.numel() * 8 for v in ran.state.params.values())
    times = {"after_round": 2, "after_run": 1}[when]
    total = sum(row["bytes_down"] for row in ran.history) - sum(row["bytes_down"] for row in plain.history)
    assert total == times * 4 * model


AUGMENTED_PASS = DataPass("augmented", class_features, augmented=True)
AUGMENTED_SUM = Sum("seen", lambda view: view.passes["augmented"], bound=1e6, passes=(AUGMENTED_PASS,))


def test_an_augmented_pass_of_an_exchange_is_augmented():
    """A pass that asks for training's transform gets it in an exchange as in a round."""
    zero = {"seen": lambda view: {"sum": torch.zeros(NUM_CLASSES, view.dim), "count": torch.zeros(NUM_CLASSES)}}
    method = replace(fedavg(), exchanges=(Exchange("before_run", (AUGMENTED_SUM,), remember),), server_state=zero)
    setup = build(method, images(), **CNN, **{"dataset.augment": "crop_flip"})
    ran = train(method, images(), **CNN, **{"dataset.augment": "crop_flip"})
    samples, start = setup.problem.samples, setup.start
    plain = setup.problem.network.features(start.params, start.buffers, samples.inputs, training=False)
    assert not torch.allclose(ran.state.extra["seen"]["sum"].sum(0), plain.sum(0))


def test_state_that_is_not_broadcast_costs_nothing_and_is_hidden():
    hidden = replace(with_exchanges(), server_state={"log": lambda view: {"n": torch.zeros(3, dtype=torch.float64)}})
    plain = [row["bytes_down"] for row in train().history]
    assert [row["bytes_down"] for row in train(hidden).history] == plain
    sent = replace(hidden, broadcast=None)
    assert [row["bytes_down"] for row in train(sent).history] == [cost + 4 * 3 * 8 for cost in plain]
    setup = build(hidden)
    assert receive(setup.problem, setup.start, tasks(setup)[0], None, 0.05).server == {}
