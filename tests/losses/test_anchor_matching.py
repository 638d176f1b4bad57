"""FedFM's anchor matching."""

import math
from dataclasses import replace

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.losses import AnchorMatching, anchor_matching

LABELS = torch.tensor([0, 3, 3, 1, 2])
HAS = torch.tensor([True, False, True, True])
MATCHES = ["contrast", "l2"]


def reference(z, labels, anchors, has, tau, match):
    terms = []
    for row, label in zip(z, labels.tolist(), strict=True):
        if not has[label]:
            continue
        if match == "l2":
            terms.append((row / row.norm() - anchors[label] / anchors[label].norm()).square().sum() / len(row))
            continue
        powers = {
            c: (row @ anchors[c] / (row.norm() * anchors[c].norm()) / tau).exp() for c in range(len(has)) if has[c]
        }
        terms.append(-(powers[label] / sum(powers.values())).log())
    return sum(terms) / len(terms)


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("tau", [0.1, 0.7])
@pytest.mark.parametrize("has", [HAS, torch.ones(4)])
def test_value_and_gradient_match_the_loop(match, tau, has, laws, double):
    z, anchors = double(5, 6), double(4, 6, seed=1)
    ours = laws.value_and_gradient(lambda x: anchor_matching(x, LABELS, anchors, has, tau, match=match), z)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, LABELS, anchors, has, tau, match), z))


def test_the_comparison_rejects_another_temperature(laws, double):
    z, anchors = double(5, 6), double(4, 6, seed=1)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: anchor_matching(x, LABELS, anchors, HAS, 0.11), z),
            laws.value_and_gradient(lambda x: reference(x, LABELS, anchors, HAS, 0.1, "contrast"), z),
            1e-3,
        )


@pytest.mark.parametrize("match", MATCHES)
def test_gradcheck(match, double):
    anchors = double(4, 6, seed=1)
    assert torch.autograd.gradcheck(
        lambda x: anchor_matching(x, LABELS, anchors, HAS, match=match), double(5, 6).requires_grad_()
    )


@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_anchors_at_orthogonal_class_directions_have_a_closed_form(tau, double):
    """Features along their own of m orthogonal anchors: log(1 + (m - 1)·e^(-1/τ)); lengths do not matter."""
    directions = torch.linalg.qr(double(6, 4)).Q.T
    z = directions[LABELS] * double(5, 1, seed=1).exp()
    for has, others in ((torch.ones(4), 3), (HAS, 2)):
        value = anchor_matching(z, LABELS, 3 * directions, has, tau)
        assert value.item() == pytest.approx(math.log1p(others * math.exp(-1 / tau)))
        assert anchor_matching(z, LABELS, 3 * directions, has, match="l2").item() == pytest.approx(0, abs=1e-28)


def test_scaling_features_and_anchors_changes_nothing(double):
    z, anchors = double(5, 6), double(4, 6, seed=1)
    for match in MATCHES:
        value = anchor_matching(z, LABELS, anchors, HAS, match=match)
        scaled = anchor_matching(z * double(5, 1, seed=2).exp(), LABELS, 7 * anchors, HAS, match=match)
        torch.testing.assert_close(scaled, value)


@pytest.mark.parametrize("match", MATCHES)
def test_classes_without_an_anchor_are_left_out_whatever_their_row_holds(match, laws, double):
    z, anchors = double(5, 6), double(4, 6, seed=1)
    exact = laws.value_and_gradient(lambda x: anchor_matching(x, LABELS, anchors, HAS, match=match), z)
    anchors[1] = torch.nan
    value, gradient = laws.value_and_gradient(lambda x: anchor_matching(x, LABELS, anchors, HAS, match=match), z)
    laws.same((value, gradient), exact)
    assert (gradient[3] == 0).all()


@pytest.mark.parametrize("match", MATCHES)
def test_no_anchor_at_all_is_silent(match, laws, double):
    garbage = torch.full((4, 6), torch.nan, dtype=torch.float64)
    value, gradient = laws.value_and_gradient(
        lambda x: anchor_matching(x, LABELS, garbage, torch.zeros(4), match=match), double(5, 6)
    )
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize(("match", "expected"), [("contrast", math.log(3)), ("l2", 1 / 6)])
def test_zero_features_have_no_direction(match, expected, laws, double):
    zero = torch.zeros(5, 6, dtype=torch.float64)
    value, gradient = laws.value_and_gradient(
        lambda x: anchor_matching(x, LABELS, double(4, 6, seed=1), HAS, match=match), zero
    )
    assert value.item() == pytest.approx(expected)
    assert (gradient == 0).all()


def test_anchors_are_constants(double):
    anchors = double(4, 6, seed=1).requires_grad_()
    for match in MATCHES:
        anchor_matching(double(5, 6).requires_grad_(), LABELS, anchors, HAS, match=match).backward()
    assert anchors.grad is None


@pytest.mark.parametrize("match", MATCHES)
def test_padding_and_vmap(match, laws, double):
    anchors = double(4, 6, seed=1)
    laws.padding(lambda z, y, mask: anchor_matching(z, y, anchors, HAS, match=match, mask=mask), double(5, 6), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    has = torch.stack((HAS, ~HAS, torch.zeros(4, dtype=torch.bool)))
    laws.vmap(
        lambda z, y, a, h: anchor_matching(z, y, a, h, match=match),
        double(3, 5, 6),
        labels,
        double(3, 4, 6, seed=1),
        has,
    )


@pytest.mark.parametrize("match", MATCHES)
def test_the_term_reads_the_step_from_its_first_round_on(match, step):
    view = step()
    term = registry.get("anchor_matching").make(tau=0.3, match=match, t_start=2)
    assert term == AnchorMatching(tau=0.3, match=match, t_start=2)
    assert (term.name, term.supervised) == ("fm", False)
    anchors = view.server["prototypes"]
    expected = anchor_matching(view.features, view.labels, anchors["mean"], anchors["has"], 0.3, match=match)
    assert expected > 0
    assert [term(replace(view, round=t)).value.item() for t in range(4)] == [0, 0, expected.item(), expected.item()]
    assert AnchorMatching(t_start=0)(view).value > 0
    assert AnchorMatching()(view).value == 0


def test_silence_keeps_the_graph_and_ignores_padding(step, double):
    features = double(6, 5)
    features[4:] = torch.nan
    view = replace(step(), features=features.requires_grad_(), mask=torch.tensor([1, 1, 1, 1, 0, 0]))
    value = AnchorMatching()(view).value
    assert value == 0
    assert (torch.autograd.grad(value, features)[0] == 0).all()


def test_bad_input_is_refused():
    with pytest.raises(Misconfigured, match="Did you mean 'contrast'"):
        AnchorMatching(match="contrst")
    with pytest.raises(Misconfigured, match="tau=0 must be positive"):
        AnchorMatching(tau=0)
    with pytest.raises(Misconfigured, match="unknown match 'l1'"):
        anchor_matching(torch.ones(5, 6), LABELS, torch.ones(4, 6), HAS, match="l1")
    with pytest.raises(Misconfigured, match=r"anchors of shape \(4, 5\) given; \[4, 6\] expected"):
        anchor_matching(torch.ones(5, 6), LABELS, torch.ones(4, 5), HAS)
    with pytest.raises(Misconfigured, match=r"has of shape \(3,\) given; \[4\] expected"):
        anchor_matching(torch.ones(5, 6), LABELS, torch.ones(4, 6), HAS[:3])
