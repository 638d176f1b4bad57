"""Wrong input is answered with one line that says what was given, what was expected and what to do."""

import math

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.losses import (
    BalancedCrossEntropy,
    balanced_cross_entropy,
    cross_entropy,
    dot_regression,
    feature_alignment,
    feature_distillation,
    feddecorr,
    lddecorr,
    projector_alignment,
)

BATCH, DIM, CLASSES = 5, 6, 4
Z, LOGITS, P = (torch.randn(n, d, generator=torch.Generator().manual_seed(0)) for n, d in ((5, 6), (5, 4), (4, 6)))
ETF = P.T.contiguous()
LABELS = torch.tensor([0, 3, 3, 1, 2])
COUNTS = torch.tensor([4, 1, 9, 2])
GOOD = {
    "cross_entropy": (cross_entropy, {"logits": LOGITS, "labels": LABELS}),
    "balanced": (balanced_cross_entropy, {"logits": LOGITS, "labels": LABELS, "counts": COUNTS}),
    "dot": (dot_regression, {"features": Z, "labels": LABELS, "etf": ETF}),
    "distillation": (feature_distillation, {"features": Z, "anchor_features": Z + 1}),
    "fa": (feature_alignment, {"features": Z, "labels": LABELS, "prototypes": P, "counts": COUNTS}),
    "pa": (projector_alignment, {"projected_prototypes": P, "etf": ETF, "mask": torch.ones(4)}),
    "lddecorr": (lddecorr, {"z": Z}),
    "feddecorr": (feddecorr, {"z": Z}),
}
SHORT = torch.ones(3)
BAD = [
    ("cross_entropy", {"logits": LOGITS[0]}, r"logits of shape \(4,\) given; \[batch, classes\] expected"),
    ("cross_entropy", {"logits": LOGITS.long()}, r"logits of dtype torch.int64 given; floating point expected"),
    ("cross_entropy", {"labels": LABELS[:3]}, r"labels of shape \(3,\) given; \[5\] expected"),
    ("cross_entropy", {"labels": LABELS.int()}, r"labels of dtype torch.int32 given; torch.int64 expected"),
    ("cross_entropy", {"mask": SHORT}, r"mask of shape \(3,\) given; \[5\] expected"),
    ("balanced", {"counts": COUNTS[:3]}, r"counts of shape \(3,\) given; \[4\] expected"),
    ("balanced", {"counts": COUNTS[:1]}, r"counts of shape \(1,\) given; \[4\] expected"),
    ("balanced", {"labels": LABELS[:3]}, r"labels of shape \(3,\) given; \[5\] expected"),
    ("balanced", {"mask": SHORT}, r"mask of shape \(3,\) given"),
    ("dot", {"features": Z.long()}, r"features of dtype torch.int64 given"),
    ("dot", {"features": Z[0]}, r"features of shape \(6,\) given; \[batch, dim\] expected"),
    ("dot", {"labels": LABELS[:3]}, r"labels of shape \(3,\) given; \[5\] expected"),
    ("dot", {"etf": ETF.T}, r"etf of shape \(4, 6\) given; \[6, classes\] expected. .* pass etf.mT"),
    ("dot", {"etf": ETF[:5]}, r"etf of shape \(5, 4\) given; \[6, classes\] expected. Make it with simplex_etf"),
    ("dot", {"mask": SHORT}, r"mask of shape \(3,\) given"),
    ("distillation", {"anchor_features": Z[:1]}, r"anchor_features of shape \(1, 6\) given; \[5, 6\] expected"),
    ("distillation", {"features": Z.long()}, r"features of dtype torch.int64 given"),
    ("distillation", {"mask": SHORT}, r"mask of shape \(3,\) given"),
    ("fa", {"features": Z.long()}, r"features of dtype torch.int64 given"),
    ("fa", {"labels": LABELS[:3]}, r"labels of shape \(3,\) given"),
    ("fa", {"prototypes": P[:, :5]}, r"prototypes of shape \(4, 5\) given; \[4, 6\] expected"),
    ("fa", {"counts": COUNTS[:3]}, r"counts of shape \(3,\) given; \[4\] expected"),
    ("fa", {"mask": SHORT}, r"mask of shape \(3,\) given; \[4\] expected"),
    ("fa", {"sample_mask": SHORT}, r"sample_mask of shape \(3,\) given; \[5\] expected"),
    ("pa", {"etf": ETF.T}, r"etf of shape \(4, 6\) given; \[6, 4\] expected. .* pass etf.mT"),
    ("pa", {"etf": ETF[:5]}, r"etf of shape \(5, 4\) given; \[6, 4\] expected"),
    ("pa", {"projected_prototypes": P.long()}, r"projected_prototypes of dtype torch.int64 given"),
    ("pa", {"mask": SHORT}, r"mask of shape \(3,\) given; \[4\] expected"),
    ("lddecorr", {"z": Z.long()}, r"features of dtype torch.int64 given"),
    ("lddecorr", {"z": Z[0]}, r"features of shape \(6,\) given"),
    ("lddecorr", {"mask": SHORT}, r"mask of shape \(3,\) given; \[5\] expected"),
    ("feddecorr", {"z": Z.long()}, r"features of dtype torch.int64 given"),
    ("feddecorr", {"mask": SHORT}, r"mask of shape \(3,\) given; \[5\] expected"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), BAD)
def test_wrong_tensors_are_refused_in_one_line(name, wrong, message):
    loss, good = GOOD[name]
    assert torch.isfinite(loss(**good))
    with pytest.raises(Misconfigured, match=message) as caught:
        loss(**good | wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "wrong", "message"), BAD)
def test_the_checks_see_one_client_under_vmap(name, wrong, message):
    loss, good = GOOD[name]
    stacked = {key: torch.stack((each, each)) for key, each in good.items()}
    mapped = torch.func.vmap(lambda tree: loss(**tree))
    assert mapped(stacked).shape == (2,)
    with pytest.raises(Misconfigured, match=message):
        mapped(stacked | {key: torch.stack((each, each)) for key, each in wrong.items()})


LACKING = torch.tensor([4, 1, 9, 0])


def test_a_label_of_a_removed_class_is_refused():
    with pytest.raises(Misconfigured, match="a label whose class has count 0 given with floor 0"):
        balanced_cross_entropy(LOGITS, LABELS, LACKING, floor=0)
    with pytest.raises(Misconfigured, match="count 0"):
        balanced_cross_entropy(LOGITS.clone().requires_grad_(), LABELS, LACKING, 0.5, 0, mask=torch.ones(5))


def test_a_label_of_a_removed_class_matters_only_where_it_counts(step):
    held = LABELS != 3
    value = balanced_cross_entropy(LOGITS, LABELS, LACKING, floor=0, mask=held)
    torch.testing.assert_close(value, balanced_cross_entropy(LOGITS[held], LABELS[held], LACKING, floor=0))
    garbage = torch.where(held, LABELS, -7)
    torch.testing.assert_close(balanced_cross_entropy(LOGITS, garbage, LACKING, floor=0, mask=held), value)
    for knobs in ({"floor": 1}, {"floor": 0, "gamma": 0.0}):
        assert torch.isfinite(balanced_cross_entropy(LOGITS, LABELS, LACKING, **knobs))
    assert torch.isfinite(BalancedCrossEntropy(floor=0)(step()).value)


def test_inside_transforms_such_a_label_costs_infinity_as_documented():
    both = torch.stack((COUNTS, LACKING))
    values = torch.func.vmap(lambda n: balanced_cross_entropy(LOGITS, LABELS, n, floor=0))(both)
    assert math.isfinite(values[0])
    assert values[1] == math.inf


def test_losses_do_not_depend_on_the_default_dtype():
    expected = {name: loss(**good) for name, (loss, good) in GOOD.items()}
    torch.set_default_dtype(torch.float64)
    try:
        found = {name: loss(**good) for name, (loss, good) in GOOD.items()}
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in found.items():
        assert value.dtype == torch.float32, name
        assert torch.equal(value, expected[name]), name
