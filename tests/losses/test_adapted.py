"""FedGELA's local adaptation."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.losses import AdaptedCrossEntropy, adaptation, adapted_cross_entropy, class_shares, cross_entropy

LABELS = torch.tensor([0, 2, 2, 1, 0])
COUNTS = torch.tensor([3, 16, 1, 0])
PHI = class_shares(COUNTS)
Q = {"exp": math.exp, "sqrt": math.sqrt}


def reference(logits, labels, phi, counts, classes):
    total = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        kept = [c for c, n in enumerate(counts.tolist()) if n > 0 or classes == "all"]
        powers = {c: (phi[c].item() * row[c]).exp() for c in kept}
        total = total - (powers[label] / sum(powers.values())).log()
    return total / len(labels)


@settings(max_examples=20, deadline=None)
@given(classes=st.sampled_from(["existing", "all"]), seed=st.integers(0, 99))
def test_value_and_gradient_match_the_scaled_softmax(classes, seed, laws, double):
    logits = double(5, 4, seed=seed)
    ours = laws.value_and_gradient(lambda x: adapted_cross_entropy(x, LABELS, PHI, COUNTS, classes=classes), logits)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, LABELS, PHI, COUNTS, classes), logits))
    assert (ours[1][:, 3] == 0).all()


def test_the_comparison_rejects_the_other_softmax(laws, double):
    logits = double(5, 4)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: adapted_cross_entropy(x, LABELS, PHI, COUNTS), logits),
            laws.value_and_gradient(lambda x: reference(x, LABELS, PHI, COUNTS, "all"), logits),
            1e-3,
        )


@pytest.mark.parametrize("classes", ["existing", "all"])
def test_gradcheck(classes, double):
    def loss(x):
        return adapted_cross_entropy(x, LABELS, PHI, COUNTS, classes=classes)

    assert torch.autograd.gradcheck(loss, double(5, 4).requires_grad_())


def test_missing_classes_receive_no_gradient_whatever_their_scale(laws, double):
    """With Φ = 1 only the softmax decides: `existing` leaves a missing class alone, `all` pushes it."""
    ones = adaptation(COUNTS, "none")
    for classes, pushed in (("existing", False), ("all", True)):
        _, gradient = laws.value_and_gradient(
            lambda x, classes=classes: adapted_cross_entropy(x, LABELS, ones, COUNTS, classes=classes), double(5, 4)
        )
        assert (gradient[:, 3] != 0).all() == pushed
        assert (gradient[:, :3] != 0).all()


def test_a_missing_class_of_scale_0_has_logit_0_in_the_full_softmax():
    logits = torch.full((1, 4), 7.0, dtype=torch.float64)
    value = adapted_cross_entropy(logits, LABELS[:1], PHI, COUNTS, classes="all")
    powers = [math.exp(7 * 4 * n / 20) for n in (3, 16, 1)]
    assert value.item() == pytest.approx(-math.log(powers[0] / (sum(powers) + 1)))


@given(per_class=st.integers(1, 10**7), num_classes=st.integers(2, 200))
@settings(max_examples=50, deadline=None)
def test_uniform_counts_scale_by_exactly_1(per_class, num_classes):
    counts = torch.full((num_classes,), per_class)
    for given_counts in (counts, counts.double()):
        assert (class_shares(given_counts) == 1).all()
        assert (adaptation(given_counts, "identity").float() == 1).all()


def test_one_class_of_average_size_scales_by_exactly_1():
    assert class_shares(torch.tensor([7, 3, 11])).tolist() == [1.0, pytest.approx(3 / 7), pytest.approx(11 / 7)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_counts_are_no_adaptation_bit_for_bit(dtype, laws, double):
    logits, counts = double(5, 4).to(dtype), torch.full((4,), 13)
    adapted, plain = (
        laws.value_and_gradient(
            lambda x, kind=kind: adapted_cross_entropy(x, LABELS, adaptation(counts, kind), counts), logits
        )
        for kind in ("identity", "none")
    )
    for mine, other in zip(adapted, plain, strict=True):
        assert torch.equal(mine, other)
    assert adapted[0] == cross_entropy(logits, LABELS)


def test_shares_are_the_formula_and_survive_an_empty_client():
    assert class_shares(COUNTS).tolist() == pytest.approx([4 * 3 / 20, 4 * 16 / 20, 4 / 20, 0])
    assert class_shares(torch.zeros(4, dtype=torch.int64)).tolist() == [0] * 4
    assert (adaptation(COUNTS, "identity") == class_shares(COUNTS)).all()
    assert adaptation(COUNTS, "none").tolist() == [1] * 4


TABLE = torch.tensor([[3, 16, 1, 0], [10, 0, 0, 0], [5, 5, 20, 0]])


@pytest.mark.parametrize("kind", ["exp", "sqrt"])
def test_shared_scales_average_to_1_over_the_clients(kind):
    shares = TABLE.double() / TABLE.sum(1, keepdim=True)
    weights = TABLE.sum(1).double() / TABLE.sum()
    reference = [
        sum(a * Q[kind](x) for a, x in zip(weights.tolist(), column, strict=True)) for column in shares.T.tolist()
    ]
    phi = torch.stack([adaptation(row, kind, torch.tensor(reference, dtype=torch.float64)) for row in TABLE])
    for row, share in zip(phi, shares, strict=True):
        for c in range(3):
            assert row[c].item() == pytest.approx(Q[kind](share[c].item()) / reference[c])
    torch.testing.assert_close((weights[:, None] * phi).sum(0)[:3], torch.ones(3).double())
    torch.testing.assert_close(phi[:, 3], torch.full((3,), 0.0 if kind == "sqrt" else 1.0).double())


def test_identity_scales_average_to_1_in_a_balanced_federation():
    table = torch.tensor([[8, 0, 2], [1, 9, 5], [1, 1, 3]])
    weights = table.sum(1).double() / table.sum()
    phi = torch.stack([class_shares(row) for row in table])
    torch.testing.assert_close((weights[:, None] * phi).sum(0), torch.ones(3).double())


@pytest.mark.parametrize("phi", ["identity", "none"])
def test_a_client_of_one_class_learns_nothing_and_says_so(phi, step):
    view = step()
    features = view.features.requires_grad_()
    alone = replace(
        view,
        output=view.head(view.params, view.fixed, features),
        labels=torch.zeros_like(view.labels),
        counts=torch.tensor([9, 0, 0]),
    )
    result = AdaptedCrossEntropy(phi=phi)(alone)
    assert result.value == 0
    assert (torch.autograd.grad(result.value, features)[0] == 0).all()
    assert result.logs["count_single_class_steps"].item() == 1.0
    full = AdaptedCrossEntropy(phi=phi, classes="all")(alone)
    assert full.value > 0
    assert full.logs["count_single_class_steps"].item() == 0.0
    assert AdaptedCrossEntropy(phi=phi)(view).logs["count_single_class_steps"].item() == 0.0


def test_half_precision_is_widened():
    logits = torch.full((2, 3), 3000.0)
    logits[:, 0] = 2999.0
    counts, labels = torch.tensor([98, 1, 1]), torch.tensor([0, 1])
    exact = adapted_cross_entropy(logits, labels, class_shares(counts), counts)
    assert math.isfinite(exact)
    for dtype in (torch.float16, torch.bfloat16):
        value = adapted_cross_entropy(logits.to(dtype), labels, class_shares(counts), counts)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=1e-2)


def test_large_class_vectors_stay_finite(laws, double):
    value, gradient = laws.value_and_gradient(
        lambda x: adapted_cross_entropy(x, LABELS, PHI, COUNTS), 1e7 * double(5, 4).float()
    )
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("classes", ["existing", "all"])
def test_padding_and_vmap(classes, laws, double):
    def loss(logits, labels, counts=COUNTS, mask=None):
        return adapted_cross_entropy(logits, labels, class_shares(counts), counts, classes=classes, mask=mask)

    laws.padding(lambda x, y, mask: loss(x, y, mask=mask), double(5, 4), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), torch.ones(5, dtype=torch.int64)))
    counts = torch.stack((COUNTS, COUNTS + 1, torch.tensor([0, 4, 0, 0])))
    laws.vmap(loss, double(3, 5, 4), labels, counts)
    nothing = loss(double(5, 4).requires_grad_(), LABELS, mask=torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


@pytest.mark.parametrize("kind", ["exp", "sqrt"])
def test_scales_and_single_class_steps_under_vmap(kind, step):
    reference = torch.tensor([0.5, 1.5, 0.7], dtype=torch.float64)
    counts = torch.tensor([[3, 16, 0], [9, 0, 0]])
    mapped = torch.func.vmap(lambda n: adaptation(n, kind, reference))(counts)
    assert torch.equal(mapped, torch.stack([adaptation(n, kind, reference) for n in counts]))
    view = step()
    logs = torch.func.vmap(lambda n: AdaptedCrossEntropy()(replace(view, counts=n)).logs["count_single_class_steps"])
    assert logs(counts).tolist() == [0, 1]


def test_the_term_reads_the_step(step):
    view = step()
    reference = torch.tensor([0.5, 1.5, 0.7], dtype=torch.float64)
    view = replace(view, server={"phi": {"reference": reference}})
    for kind in ("identity", "exp", "sqrt", "none"):
        for classes in ("existing", "all"):
            term = registry.get("adapted_cross_entropy").make(phi=kind, classes=classes)
            assert term == AdaptedCrossEntropy(phi=kind, classes=classes)
            assert (term.name, term.supervised) == ("supervised", True)
            phi = adaptation(view.counts, kind, reference)
            expected = adapted_cross_entropy(view.logits, view.labels, phi, view.counts, classes=classes)
            assert term(view).value == expected
    assert AdaptedCrossEntropy() == AdaptedCrossEntropy(phi="identity", classes="existing")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"phi": "sqr"}, "Did you mean 'sqrt'"), ({"classes": "exist"}, "Did you mean 'existing'")],
)
def test_bad_knobs_are_refused(options, message):
    with pytest.raises(Misconfigured, match=message):
        AdaptedCrossEntropy(**options)


def test_bad_input_is_refused(double):
    with pytest.raises(Misconfigured, match="unknown phi 'log'"):
        adaptation(COUNTS, "log")
    with pytest.raises(Misconfigured, match="phi='exp' needs the clients' mean"):
        adaptation(COUNTS, "exp")
    with pytest.raises(Misconfigured, match=r"reference of shape \(3,\) given; \[4\] expected"):
        adaptation(COUNTS, "exp", torch.ones(3))
    with pytest.raises(Misconfigured, match="unknown classes 'some'"):
        adapted_cross_entropy(double(5, 4), LABELS, PHI, COUNTS, classes="some")
    with pytest.raises(Misconfigured, match=r"phi of shape \(3,\) given; \[4\] expected"):
        adapted_cross_entropy(double(5, 4), LABELS, PHI[:3], COUNTS)
    with pytest.raises(Misconfigured, match=r"counts of shape \(3,\) given; \[4\] expected"):
        adapted_cross_entropy(double(5, 4), LABELS, PHI, COUNTS[:3])
