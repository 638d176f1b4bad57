"""Aggregation: order, chunks, empty and idle clients, weights, fixed points."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade import payloads
from fedblade.core.errors import RunFailed
from fedblade.core.outcome import train_client
from fedblade.core.state import MemoryStore, ServerState
from fedblade.core.sums import Sums
from fedblade.core.views import EndView
from fedblade.engines.base import RoundOutcome
from fedblade.runs import Driver, RunListener
from fedblade.server import average
from support.one_client import sums_of
from support.small_federation import (
    BATCH_NORM,
    assert_close,
    assert_same_bits,
    assert_same_run,
    build,
    tasks,
    train,
    vectors,
)

WEIGHTS = st.floats(0.05, 20.0)


def numbers(shape, seed, dtype):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def server(dtype=torch.float64):
    params = {"body.w": numbers((4, 3), 1, dtype), "head.b": numbers((2,), 2, dtype)}
    buffers = {"body.running_mean": numbers((3,), 3, dtype), "body.num_batches_tracked": torch.tensor(5)}
    return ServerState(params, buffers, {})


def upload(state, seed, weight):
    """What a client with weights drawn from `seed` sends."""
    dtype = state.params["body.w"].dtype
    fields = dict.fromkeys(EndView.__dataclass_fields__)
    params = {n: numbers(v.shape, 10 + seed, dtype) for n, v in state.params.items()}
    buffers = {"body.running_mean": numbers((3,), 20 + seed, dtype), "body.num_batches_tracked": torch.tensor(7 + seed)}
    view = EndView(
        **{
            **fields,
            "params": params,
            "buffers": buffers,
            "anchor": state.params,
            "weight": weight,
            "round": 0,
            "shared": frozenset(state.params) | frozenset(state.buffers),
        }
    )
    return view, sums_of(payloads.MODEL, view, seed)


def averaged(state, uploads):
    return average(state, reduce(Sums.__add__, (sums for _, sums in uploads), Sums()))


@settings(max_examples=40, deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=6))
def test_the_average_is_the_weighted_mean_of_the_clients(weights):
    state = server()
    uploads = [upload(state, seed, weight) for seed, weight in enumerate(weights)]
    new = averaged(state, uploads)
    shares = np.array(weights) / np.sum(weights)
    for name in state.params:
        mean = sum(a * view.params[name] for a, (view, _) in zip(shares, uploads, strict=True))
        torch.testing.assert_close(new.params[name], mean, rtol=0, atol=1e-12)
    mean = sum(a * view.buffers["body.running_mean"] for a, (view, _) in zip(shares, uploads, strict=True))
    torch.testing.assert_close(new.buffers["body.running_mean"], mean, rtol=0, atol=1e-12)
    assert new.buffers["body.num_batches_tracked"] == 6 + len(weights)
    assert new.buffers["body.num_batches_tracked"].dtype == torch.int64


@settings(max_examples=40, deadline=None)
@given(st.lists(WEIGHTS, min_size=1, max_size=5), st.floats(0.01, 100.0))
def test_only_the_ratio_of_weights_matters(weights, factor):
    state = server()
    one = averaged(state, [upload(state, i, w) for i, w in enumerate(weights)])
    other = averaged(state, [upload(state, i, w * factor) for i, w in enumerate(weights)])
    assert_close(one.params, other.params, 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(WEIGHTS, min_size=2, max_size=6), st.randoms())
def test_clients_may_report_in_any_order(weights, random):
    state = server()
    uploads = [upload(state, i, w) for i, w in enumerate(weights)]
    assert_close(averaged(state, uploads).params, averaged(state, random.sample(uploads, len(uploads))).params, 1e-12)


@settings(max_examples=40, deadline=None)
@given(power=st.integers(0, 3), seed=st.integers(0, 99))
def test_identical_clients_are_a_fixed_point_bit_for_bit_in_float32(power, seed):
    state = server(torch.float32)
    uploads = [upload(state, seed, 1.0)] * 2**power
    view = uploads[0][0]
    new = averaged(state, uploads)
    assert_same_bits(new.params, view.params)
    assert_same_bits(new.buffers, view.buffers)


@settings(max_examples=40, deadline=None)
@given(weights=st.lists(WEIGHTS, min_size=1, max_size=7), seed=st.integers(0, 99))
def test_identical_clients_are_a_fixed_point_whatever_their_weights(weights, seed):
    state = server()
    uploads = [upload(state, seed, w) for w in weights]
    assert_close(averaged(state, uploads).params, uploads[0][0].params, 1e-12)
    assert_close(averaged(state, uploads).buffers, uploads[0][0].buffers, 1e-12)


def test_averaging_leaves_the_old_state_alone():
    state = server()
    before = {n: v.clone() for n, v in (state.params | state.buffers).items()}
    averaged(state, [upload(state, 0, 1.0)])
    assert_same_bits(state.params | state.buffers, before)


def outcome(setup, chosen):
    return setup.engine.train(setup.start, chosen, MemoryStore(), 0.05, lambda client: None)


def round_of(setup, chosen):
    return setup.method.server(setup.start, outcome(setup, chosen).sums)


METHODS = ["fedavg", "fedprox", "feddecorr", "fedetf", "fedblade"]


@pytest.mark.parametrize("method", METHODS)
def test_a_cohort_may_be_cut_anywhere(method):
    setup = build(method, **BATCH_NORM)
    cohort = tasks(setup)
    whole = round_of(setup, cohort)
    for cut in range(1, len(cohort)):
        parts = [outcome(setup, part) for part in (cohort[:cut], cohort[cut:])]
        joined = setup.method.server(setup.start, parts[0].sums + parts[1].sums)
        assert_close(joined.flat(), whole.flat(), 1e-12)
    streamed = [train_client(setup.problem, setup.start, task, None, 0.05).sums for task in cohort]
    assert_same_bits(setup.method.server(setup.start, reduce(Sums.__add__, streamed)).flat(), whole.flat())


@pytest.mark.parametrize("method", METHODS)
def test_a_client_sends_the_same_whoever_trained_before_it(method):
    setup = build(method, **BATCH_NORM)
    cohort = tasks(setup)
    alone = outcome(setup, cohort[2:3]).sums
    outcome(setup, cohort)
    outcome(setup, [cohort[3], cohort[0]])
    again = outcome(setup, cohort[2:3]).sums
    for name, tree in alone.trees.items():
        assert_same_bits(again[name], tree)


@pytest.mark.parametrize("method", METHODS)
def test_an_idle_client_changes_nothing(method):
    """A client without a step adds nothing: no step, no update, no weight, no prototypes; but it is counted."""
    setup = build(method, **BATCH_NORM)
    cohort = tasks(setup)
    idle = replace(cohort[1], phases=((),), weight=0.0)
    without = outcome(setup, [cohort[0], cohort[2]])
    with_idle = outcome(setup, [cohort[0], idle, cohort[2]])
    for name, tree in without.sums.trees.items():
        assert_same_bits(with_idle.sums[name], tree)
    assert with_idle.bytes_up == without.bytes_up
    counted, before = with_idle.log.means(), without.log.means()
    assert (counted.pop("count_idle_clients"), before.pop("count_idle_clients")) == (1, 0)
    assert counted == before


@pytest.mark.parametrize("method", METHODS)
def test_a_round_of_idle_clients_changes_nothing(method):
    setup = build(method, **{"local.last_batch": "drop", "local.batch_size": 100}, **BATCH_NORM)
    driver = Driver(setup, None, RunListener())
    with pytest.raises(RunFailed, match="no client made a step in any of the 2 rounds"):
        driver.run()
    assert_same_bits(driver.state.flat(), setup.start.flat())
    assert [row["count_idle_clients"] for row in driver.history] == [4, 4]
    assert [row["count_untrained_rounds"] for row in driver.history] == [1, 1]
    assert [row["bytes_up"] for row in driver.history] == [0, 0]


def test_no_clients_make_no_outcome():
    empty = outcome(build(), [])
    assert empty == RoundOutcome()


SPARSE = {"partition.alpha": 1e-3, "partition.min_size": 0, "partition.cap": False, "partition.allow_empty": True}


@pytest.mark.parametrize("method", METHODS)
def test_empty_clients_are_never_drawn_and_weigh_nothing(method):
    overrides = {**SPARSE, "num_clients": 12, "clients_per_round": 2, "rounds": 4, "seed": 1}
    ran = train(method, **overrides)
    sizes = ran.setup.clients.train.sizes()
    empty = set(np.flatnonzero(sizes == 0))
    assert empty
    assert not empty & {client for row in ran.history for client in row["clients"]}
    used = sizes[sizes > 0]
    assert ran.setup.planner.task(0, int(sizes.argmax())).weight == pytest.approx(sizes.max() / used.mean(), rel=1e-15)


EQUAL = {"partition": "iid"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_is_samples_for_clients_of_equal_size(method, dtype):
    runs = [
        train(method, vectors(152), dtype=dtype, weighting=w, **EQUAL, **BATCH_NORM) for w in ("samples", "uniform")
    ]
    assert set(runs[0].setup.clients.train.sizes()) == {38}
    assert_same_run(*runs)


def test_uniform_is_not_samples_for_unequal_clients():
    a, b = (train(weighting=w).state.params["head.weight"] for w in ("samples", "uniform"))
    assert not torch.equal(a, b)


@pytest.mark.parametrize("weighting", ["samples", "uniform", "batches"])
def test_weights_normalise_to_the_documented_shares(weighting):
    setup = build(weighting=weighting)
    cohort = tasks(setup)
    total = outcome(setup, cohort).sums.scalar("weight")
    shares = np.array([task.weight / total for task in cohort])
    sizes = setup.clients.train.sizes()
    expected = {"samples": sizes, "uniform": np.ones(4), "batches": 2 * -(-sizes // 8)}[weighting]
    assert shares.sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-14)
