from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.heads import class_vectors, simplex_etf
from fedblade.losses import FeatureAlignment, ProjectorAlignment, feature_alignment, projector_alignment

ETF = simplex_etf(6, 4, seed=3, dtype=torch.float64)
LABELS = torch.tensor([0, 3, 3, 1, 2])
COUNTS = torch.tensor([4, 1, 9, 2])


def cosine(a, b):
    return a @ b / (a.norm() * b.norm())


def reference_pa(q, etf, has):
    return sum(0.5 * (1 - cosine(q[c], etf[:, c])) ** 2 for c in range(len(q)) if has[c])


def reference_fa(z, labels, prototypes, counts, tau, has, floor):
    """The softmax over classes with a prototype, written out; only samples of such classes."""
    terms = []
    classes = [c for c in range(len(prototypes)) if has[c]]
    for row, label in zip(z, labels.tolist(), strict=True):
        if has[label]:
            weights = {c: max(float(counts[c]), floor) * (cosine(row, prototypes[c]) / tau).exp() for c in classes}
            terms.append(-(weights[label] / sum(weights.values())).log())
    return sum(terms) / len(terms) if terms else z.sum() * 0


masks = st.lists(st.booleans(), min_size=4, max_size=4)


@settings(max_examples=16, deadline=None)
@given(has=masks, seed=st.integers(0, 99))
def test_projector_alignment_matches_the_loop(has, seed, laws, double):
    q, mask = double(4, 6, seed=seed), torch.tensor(has)
    ours = laws.value_and_gradient(lambda x: projector_alignment(x, ETF, mask), q)
    laws.same(ours, laws.value_and_gradient(lambda x: reference_pa(x, ETF, has) + x.sum() * 0, q))
    mean = projector_alignment(q, ETF, mask.double(), reduction="mean")
    torch.testing.assert_close(mean * max(sum(has), 1), ours[0])


@settings(max_examples=25, deadline=None)
@given(has=masks, floor=st.sampled_from([0, 1, 3]), tau=st.floats(0.1, 2), seed=st.integers(0, 99))
def test_feature_alignment_matches_the_loop(has, floor, tau, seed, laws, double):
    z, p = double(5, 6, seed=seed), double(4, 6, seed=seed + 1)
    mask = torch.tensor(has)
    ours = laws.value_and_gradient(lambda x: feature_alignment(x, LABELS, p, COUNTS, tau, mask, floor), z)
    slow = laws.value_and_gradient(lambda x: reference_fa(x, LABELS, p, COUNTS, tau, has, floor), z)
    laws.same(ours, slow)


def test_comparisons_reject_a_sum_over_all_classes(laws, double):
    q, has = double(4, 6), [True, False, True, True]
    with pytest.raises(AssertionError):
        laws.same((projector_alignment(q, ETF, torch.ones(4)),), (reference_pa(q, ETF, has),), 1e-3)
    z, p = double(5, 6), double(4, 6, seed=1)
    with pytest.raises(AssertionError):
        laws.same(
            (feature_alignment(z, LABELS, p, COUNTS),),
            (reference_fa(z, LABELS, p, COUNTS, 0.1, has, 1),),
            1e-3,
        )


def test_gradchecks(double):
    has = torch.tensor([True, False, True, True])
    assert torch.autograd.gradcheck(lambda q: projector_alignment(q, ETF, has), double(4, 6).requires_grad_())
    p, z = double(4, 6, seed=1), double(5, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: feature_alignment(x, LABELS, p, COUNTS, 0.5, has), z)


def test_projector_alignment_is_zero_only_for_parallel_prototypes():
    everywhere = torch.ones(4)
    assert projector_alignment(3 * ETF.T, ETF, everywhere).item() == pytest.approx(0, abs=1e-15)
    assert projector_alignment(-ETF.T, ETF, everywhere).item() == pytest.approx(4 * 2)


@pytest.mark.parametrize("floor", [0, 1])
def test_without_prototypes_everything_is_exactly_zero(floor, laws, double):
    nowhere, q, z = torch.zeros(4), torch.zeros(4, 6, dtype=torch.float64), double(5, 6)
    for value, gradient in (
        laws.value_and_gradient(lambda x: projector_alignment(x, ETF, nowhere), q),
        laws.value_and_gradient(lambda x: feature_alignment(x, LABELS, q, COUNTS, 0.1, nowhere, floor), z),
    ):
        assert value == 0
        assert (gradient == 0).all()


def test_removed_classes_stay_finite(laws, double):
    z, p, counts = double(5, 6), double(4, 6, seed=1), torch.tensor([4, 0, 0, 2])
    has = torch.tensor([True, True, False, False])
    value, gradient = laws.value_and_gradient(lambda x: feature_alignment(x, LABELS, p, counts, 0.1, has, 0), z)
    assert value == 0  # class 0 is alone in the softmax, and only its sample is used
    assert torch.isfinite(gradient).all()


def test_zero_vectors_have_cosine_zero_and_no_gradient(laws, double):
    q = double(4, 6)
    q[1] = 0
    value, gradient = laws.value_and_gradient(lambda x: projector_alignment(x, ETF, torch.ones(4)), q)
    assert torch.isfinite(value)
    assert (gradient[1] == 0).all()
    z = double(5, 6)
    z[2] = 0
    value, gradient = laws.value_and_gradient(lambda x: feature_alignment(x, LABELS, q, COUNTS), z)
    assert torch.isfinite(gradient).all()
    assert (gradient[2] == 0).all()


def test_prototypes_are_constants(double):
    p = double(4, 6).requires_grad_()
    assert not feature_alignment(double(5, 6, seed=1), LABELS, p, COUNTS).requires_grad


def test_padding_and_vmap(laws, double):
    p, has = double(4, 6, seed=1), torch.tensor([True, True, False, True])
    for floor in (0, 1):
        laws.padding(
            lambda z, y, mask, floor=floor: feature_alignment(z, y, p, COUNTS, mask=has, floor=floor, sample_mask=mask),
            double(5, 6),
            LABELS,
        )
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    counts = torch.stack((COUNTS, torch.tensor([0, 0, 3, 1]), COUNTS))
    held = torch.tensor([[True] * 4, [True, True, False, True], [False] * 4])
    laws.vmap(lambda z, y, n, h: feature_alignment(z, y, p, n, mask=h, floor=0), double(3, 5, 6), labels, counts, held)
    laws.vmap(lambda q, h: projector_alignment(q, ETF, h), double(3, 4, 6), held)


def _gradients(term, view):
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in view.params.items()}
    z = view.features.clone().requires_grad_()
    output = view.head(leaves, view.fixed, z)
    value = term(replace(view, params=leaves, features=z, output=output)).value
    inputs = {"features": z, **leaves}
    found = torch.autograd.grad(value, list(inputs.values()), allow_unused=True)
    return value, {name for name, each in zip(inputs, found, strict=True) if each is not None and each.any()}


def test_each_side_of_the_alignment_reaches_its_own_parameters(step):
    view = step()
    value, reached = _gradients(ProjectorAlignment(), view)
    assert value > 0
    assert reached == {"projector.weight", "projector.bias"}
    value, reached = _gradients(FeatureAlignment(), view)
    assert value > 0
    assert reached == {"features"}


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("has", [[True, True, False], [True, True, True], [False, False, False]])
def test_signs_align_as_the_class_vectors_that_they_stand_for(step, has, reduction):
    view, signs = step(has=torch.tensor(has)), torch.tensor([1.0, -1.0, -1.0], dtype=torch.float64)
    # What a class without a prototype holds has no influence.
    view.server["prototypes"]["mean"][~torch.tensor(has)] = 1e6
    term, found = ProjectorAlignment(reduction=reduction), []
    for etf in (signs, class_vectors(signs)):
        leaves = {name: leaf.clone().requires_grad_() for name, leaf in view.params.items()}
        value = term(replace(view, params=leaves, fixed={"etf": etf})).value
        projector = [leaf for name, leaf in leaves.items() if name.startswith("projector")]
        found.append((value, *torch.autograd.grad(value, projector)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def test_terms_are_silent_without_prototypes(step):
    view = step(has=torch.zeros(3))
    for term in (ProjectorAlignment(), FeatureAlignment(floor=0)):
        value, reached = _gradients(term, view)
        assert value == 0
        assert reached == set()


def test_terms_read_the_step(step):
    view = step()
    prototypes = view.server["prototypes"]
    projected = view.head.project(view.params, prototypes["mean"])
    expected = projector_alignment(projected, view.fixed["etf"], prototypes["has"])
    assert ProjectorAlignment()(view).value == expected
    expected = feature_alignment(view.features, view.labels, prototypes["mean"], view.counts, 0.2, prototypes["has"], 0)
    assert FeatureAlignment(tau=0.2, floor=0)(view).value == expected


def test_distribution_factor_only_matters_with_unequal_counts(step):
    view = step()
    assert FeatureAlignment(distribution_factor=False)(view).value != FeatureAlignment()(view).value
    uniform = replace(view, counts=torch.full((3,), 8))
    torch.testing.assert_close(
        FeatureAlignment(distribution_factor=False)(uniform).value, FeatureAlignment()(uniform).value
    )


def test_bad_knobs_are_refused():
    with pytest.raises(Misconfigured, match="tau=0 must be positive"):
        FeatureAlignment(tau=0)
    with pytest.raises(Misconfigured, match="Did you mean 'mean'"):
        ProjectorAlignment(reduction="means")
