"""Sums add: in any grouping and, for whole numbers, in any order; nobody is a neutral summand."""

from functools import reduce

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.outcome import StepLog
from fedblade.core.sums import Sums

WHOLE = st.integers(-(2**40), 2**40)


@st.composite
def payloads(draw, numbers=WHOLE):
    """Up to six clients' sums: one added, one maximised."""
    count, width = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=count, max_size=count))
    return [_sums(torch.tensor(row, dtype=torch.float64)) for row in rows]


def _sums(row):
    return Sums({"delta": {"w": row}, "counters": {"n": row.abs()}}, {"delta": "sum", "counters": "max"})


def add(parts):
    return reduce(Sums.__add__, parts, Sums())


def same(a, b):
    return all(torch.equal(a[name][leaf], b[name][leaf]) for name in a.trees for leaf in a[name])


@settings(max_examples=60, deadline=None)
@given(payloads(), st.data())
def test_chunks_of_a_cohort_add_up_to_the_cohort(clients, data):
    cut = data.draw(st.integers(0, len(clients)))
    assert same(add(clients), add(clients[:cut]) + add(clients[cut:]))


@settings(max_examples=60, deadline=None)
@given(payloads(), st.randoms())
def test_order_does_not_matter(clients, random):
    shuffled = random.sample(clients, len(clients))
    assert same(add(clients), add(shuffled))


@settings(max_examples=60, deadline=None)
@given(payloads(), st.data())
def test_empty_sums_change_nothing_wherever_they_stand(clients, data):
    place = data.draw(st.integers(0, len(clients)))
    assert same(add(clients), add([*clients[:place], Sums(), *clients[place:]]))


@settings(max_examples=60, deadline=None)
@given(payloads(st.floats(-1e6, 1e6)), st.randoms())
def test_real_numbers_add_to_the_last_bits_in_any_order(clients, random):
    total = add(clients)["delta"]["w"]
    shuffled = add(random.sample(clients, len(clients)))["delta"]["w"]
    torch.testing.assert_close(shuffled, total, rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(payloads())
def test_a_maximum_of_equals_is_itself(clients):
    one = clients[0]
    assert torch.equal(add([one] * 3)["counters"]["n"], one["counters"]["n"])
    assert torch.equal(add([one] * 3)["delta"]["w"], one["delta"]["w"] * 3)


LOGS = st.dictionaries(st.sampled_from(["loss_a", "loss_b", "count_c"]), st.tuples(WHOLE, st.integers(1, 9)))


def log(entries):
    return StepLog({n: float(v) for n, (v, _) in entries.items()}, {n: s for n, (_, s) in entries.items()})


@settings(max_examples=60, deadline=None)
@given(LOGS, LOGS, LOGS)
def test_logs_are_a_commutative_monoid(a, b, c):
    a, b, c = log(a), log(b), log(c)
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert (a + StepLog()).means() == a.means()
