import pytest
import torch

from fedblade.core.errors import NonFinite
from fedblade.core.sums import Sum, Sums, payload_bytes
from fedblade.core.views import EndView
from support.one_client import sums_of


def end_view(**changes):
    fields = dict.fromkeys(EndView.__dataclass_fields__)
    return EndView(**{**fields, "round": 4, **changes})


TOTAL = Sum("total", lambda view: view.params, bound=1.0)
LARGEST = Sum("largest", lambda view: view.buffers, bound=1.0, reduce="max")


def sums(*numbers):
    return sums_of(
        (TOTAL, LARGEST), end_view(params={"a": torch.tensor(numbers)}, buffers={"n": torch.tensor(numbers)}), 0
    )


def test_payloads_are_float64_and_detached():
    leaf = torch.ones(2, requires_grad=True)
    made = sums_of((TOTAL,), end_view(params={"a": leaf}), 0)
    assert made["total"]["a"].dtype == torch.float64
    assert not made["total"]["a"].requires_grad


def test_adding_sums_and_taking_the_maximum():
    both = sums(1.0, 5.0) + sums(3.0, 2.0)
    assert both["total"]["a"].tolist() == [4.0, 7.0]
    assert both["largest"]["n"].tolist() == [3.0, 5.0]
    assert (both + sums(9.0, 0.0))["largest"]["n"].tolist() == [9.0, 5.0]


def test_empty_sums_are_the_zero():
    one = sums(1.0)
    assert (Sums() + one).trees == one.trees
    assert (one + Sums()).trees == one.trees
    assert (Sums() + one + sums(2.0))["largest"]["n"].tolist() == [2.0]
    assert not (Sums() + Sums()).trees


def test_adding_touches_neither_summand():
    one, two = sums(1.0), sums(2.0)
    _ = one + two
    assert (one["total"]["a"].item(), two["total"]["a"].item()) == (1.0, 2.0)


def test_sums_of_other_names_do_not_add():
    other = sums_of((TOTAL,), end_view(params={"a": torch.ones(1)}), 0)
    with pytest.raises(KeyError, match="largest"):
        sums(1.0) + other


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_sum_that_is_not_finite_names_client_round_and_sum(bad):
    with pytest.raises(NonFinite, match=r"client 7 .*'total' in round 5"):
        sums_of((TOTAL,), end_view(params={"a": torch.tensor([0.0, bad])}), 7)


def test_scalar_reads_a_payload_of_one_number():
    assert Sums({"w": {"w": torch.tensor(2.5)}}, {"w": "sum"}).scalar("w") == 2.5


def test_bytes_count_every_number_once():
    assert payload_bytes((TOTAL, LARGEST), sums(1.0, 2.0, 3.0), held_classes=1, float_bytes=4) == 24


def test_rows_of_absent_classes_cost_nothing():
    by_class = Sum("p", lambda view: view.params, bound=1.0, by_class=True)
    tree = {"sum": torch.zeros(5, 16), "count": torch.zeros(5)}
    made = sums_of((by_class,), end_view(params=tree), 0)
    assert payload_bytes((by_class,), made, held_classes=3, float_bytes=4) == (3 * 16 + 3) * 4
    assert payload_bytes((by_class,), made, held_classes=3, float_bytes=8) == (3 * 16 + 3) * 8


def test_a_scalar_beside_class_rows_is_paid_in_full():
    by_class = Sum("p", lambda view: view.params, bound=1.0, by_class=True)
    made = sums_of((by_class,), end_view(params={"sum": torch.zeros(5, 2), "weight": torch.tensor(1.0)}), 0)
    assert payload_bytes((by_class,), made, held_classes=2, float_bytes=4) == (2 * 2 + 1) * 4
