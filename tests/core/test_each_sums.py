"""Sums that keep the clients apart: rows in ascending client order, and the other ways of adding unchanged."""

from dataclasses import replace
from functools import reduce

import pytest
import torch

from fedblade.core.errors import NonFinite
from fedblade.core.outcome import train_client
from fedblade.core.state import MemoryStore
from fedblade.core.sums import Sum, Sums, payload_bytes
from fedblade.core.views import EndView
from fedblade.methods.fedavg import fedavg
from support.one_client import sums_of
from support.small_federation import assert_same_bits, build, tasks


def end_view(**changes):
    return EndView(**{**dict.fromkeys(EndView.__dataclass_fields__), "round": 4, **changes})


ALL = (
    Sum("total", lambda view: view.params, bound=1.0),
    Sum("largest", lambda view: view.params, bound=1.0, reduce="max"),
    Sum("each", lambda view: view.params, bound=1.0, reduce="each"),
)


def client(number, declared=ALL):
    tree = {"v": torch.tensor([number, -number]), "n": torch.tensor(float(number))}
    return sums_of(declared, end_view(params=tree), int(number))


def add(parts):
    return reduce(Sums.__add__, parts, Sums())


def test_each_client_is_a_row_on_a_new_first_axis():
    both = client(3.0) + client(1.0) + client(2.0)
    assert both["each"]["v"].tolist() == [[3.0, -3.0], [1.0, -1.0], [2.0, -2.0]]
    assert both["each"]["n"].tolist() == [3.0, 1.0, 2.0]
    assert both["each"]["v"].dtype == torch.float64


def test_one_client_is_one_row():
    assert client(5.0)["each"]["v"].shape == (1, 2)
    assert client(5.0)["each"]["n"].shape == (1,)
    assert (Sums() + client(5.0))["each"]["v"].shape == (1, 2)


def test_the_other_ways_of_adding_are_unchanged():
    both = client(3.0) + client(1.0) + client(2.0)
    assert both["total"]["v"].tolist() == [6.0, -6.0]
    assert both["largest"]["v"].tolist() == [3.0, -1.0]
    alone = add(client(n, ALL[:2]) for n in (3.0, 1.0, 2.0))
    for name in ("total", "largest"):
        assert_same_bits(both[name], alone[name])


@pytest.mark.parametrize("cut", range(6))
def test_chunks_of_a_cohort_make_the_same_rows(cut):
    clients = [client(float(n)) for n in range(5)]
    whole, parts = add(clients), add(clients[:cut]) + add(clients[cut:])
    assert_same_bits(whole["each"], parts["each"])
    left, right = (clients[0] + clients[1]) + clients[2], clients[0] + (clients[1] + clients[2])
    assert_same_bits(left["each"], right["each"])


def test_adding_touches_neither_summand():
    one, two = client(1.0), client(2.0)
    _ = one + two
    assert one["each"]["v"].tolist() == [[1.0, -1.0]]
    assert two["each"]["v"].tolist() == [[2.0, -2.0]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_names_client_and_sum(bad):
    with pytest.raises(NonFinite, match=r"client 7 .*'each' in round 5"):
        sums_of(ALL[2:], end_view(params={"v": torch.tensor([0.0, bad])}), 7)


def test_a_row_costs_what_a_sum_costs():
    tree = {"v": torch.zeros(3, 4), "n": torch.tensor(1.0)}
    sent = {each.name: sums_of((each,), end_view(params=tree), 0) for each in ALL}
    costs = {each.name: payload_bytes((each,), sent[each.name], held_classes=1, float_bytes=4) for each in ALL}
    assert costs == dict.fromkeys(costs, 13 * 4)


def test_rows_of_absent_classes_cost_nothing_here_either():
    by_class = Sum("p", lambda view: view.params, bound=1.0, by_class=True, reduce="each")
    tree = {"sum": torch.zeros(5, 16), "count": torch.zeros(5), "weight": torch.tensor(1.0)}
    made = sums_of((by_class,), end_view(params=tree), 0)
    assert payload_bytes((by_class,), made, held_classes=3, float_bytes=4) == (3 * 16 + 3 + 1) * 4


BIAS = Sum(
    "bias", lambda view: {"bias": view.params["head.bias"], "n": torch.tensor(view.num_samples)}, 1e3, reduce="each"
)


def test_a_round_gives_the_rows_in_ascending_client_order():
    setup = build(replace(fedavg(), sums=(*fedavg().sums, BIAS)), clients_per_round=3, num_clients=6)
    cohort = tasks(setup, 1)
    outcome = setup.engine.train(setup.start, iter(cohort), MemoryStore(), 0.05, lambda client: None)
    alone = [train_client(setup.problem, setup.start, task, None, 0.05).sums for task in cohort]
    assert [task.client for task in cohort] == sorted(task.client for task in cohort)
    assert torch.equal(outcome.sums["bias"]["bias"], torch.cat([sums["bias"]["bias"] for sums in alone]))
    assert outcome.sums["bias"]["n"].tolist() == [len(task.indices) for task in cohort]
    assert len(set(outcome.sums["bias"]["n"].tolist())) > 1


def test_a_client_without_a_step_has_no_row():
    setup = build(replace(fedavg(), sums=(*fedavg().sums, BIAS)))
    first, second, *rest = tasks(setup)
    idle = replace(second, phases=((),), weight=0.0)
    outcome = setup.engine.train(setup.start, [first, idle, *rest], MemoryStore(), 0.05, lambda client: None)
    assert outcome.sums["bias"]["bias"].shape == (len(rest) + 1, 5)
