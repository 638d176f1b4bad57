import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.losses import RelaxedContrastive, relaxed_contrastive

LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 1])


def reference(x, labels, tau, beta, threshold, mining):
    """One sample at a time: pick partners by sorting, then write out the two ratios."""
    rows = [row / row.norm() for row in x]
    labels = labels.tolist()
    total = x.sum() * 0
    for i, row in enumerate(rows):
        mates = sorted((row @ rows[j] for j in range(len(rows)) if j != i and labels[j] == labels[i]), key=Tensor.item)
        others = sorted((row @ rows[j] for j in range(len(rows)) if labels[j] != labels[i]), key=Tensor.item)
        if mining == "hard":
            mates, others = mates[:1], others[-2:]
        push = sum((s / tau).exp() for s in others)
        contrasts, penalties = [], []
        for s in mates or [torch.ones((), dtype=x.dtype)]:
            pull = (s / tau).exp()
            contrasts.append(-(pull / (pull + push)).log())
            close = bool(mates) and s >= threshold
            penalties.append((1 + ((s - 1) / tau).exp()).log() if close else torch.zeros((), dtype=x.dtype))
        total = total + sum(contrasts) / len(contrasts) + beta * sum(penalties) / len(penalties)
    return total / len(rows)


def check(laws, x, labels, tau=0.3, beta=1.0, threshold=0.2, mining="hard"):
    ours = laws.value_and_gradient(
        lambda z: relaxed_contrastive(z, labels, tau, beta, threshold, mining=mining),
        x,
    )
    laws.same(ours, laws.value_and_gradient(lambda z: reference(z, labels, tau, beta, threshold, mining), x))
    return ours


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    mining=st.sampled_from(["hard", "all"]),
    tau=st.sampled_from([0.05, 0.1, 1.0]),
    beta=st.sampled_from([0.0, 0.7, 2.0]),
    threshold=st.sampled_from([-1.0, 0.0, 0.3]),
    seed=st.integers(0, 99),
)
def test_value_and_gradient_match_the_loop(labels, mining, tau, beta, threshold, seed, laws, double):
    x = double(len(labels), 4, seed=seed)
    check(laws, x, torch.tensor(labels), tau, beta, threshold, mining)


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_without_the_penalty_it_is_supervised_contrast(mining, laws, double):
    x, tau = double(7, 4), 0.1
    value, _ = check(laws, x, LABELS, tau, 0.0, 0.7, mining)
    s = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).T / tau
    terms = []
    for i in range(7):
        mates = [j for j in range(7) if LABELS[j] == LABELS[i] and j != i]
        others = s[i][LABELS[i] != LABELS]
        others = others.topk(2).values if mining == "hard" else others
        positives = s[i][mates] if mates else torch.tensor([1 / tau], dtype=s.dtype)
        positives = positives.min()[None] if mining == "hard" else positives
        logits = [torch.cat((p[None], others)) for p in positives]
        terms.append(torch.stack([torch.logsumexp(each, 0) - each[0] for each in logits]).mean())
    torch.testing.assert_close(value, torch.stack(terms).mean())


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_hopeless_pairs_are_as_exact_as_others(mining, laws):
    """Contrasts beyond 20, where the exponential of the positive is small but not nothing."""
    x = torch.tensor([[1, 0.1], [-1, 0.2], [1, 0.05], [-0.9, 0.3]], dtype=torch.float64)
    value, _ = check(laws, x, torch.tensor([0, 0, 1, 1]), 0.09, mining=mining)
    assert value > 21


def test_the_comparison_rejects_the_other_mining(laws, double):
    x = double(7, 4)
    with pytest.raises(AssertionError):
        laws.same((relaxed_contrastive(x, LABELS),), (reference(x, LABELS, 0.05, 1.0, 0.7, "all"),), 1e-3)


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_gradcheck(mining, double):
    def loss(x):
        return relaxed_contrastive(x, LABELS, 0.5, 1.0, 0.1, mining=mining)

    assert torch.autograd.gradcheck(loss, double(7, 4).requires_grad_())


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_a_threshold_above_one_switches_the_penalty_off(mining, laws, double):
    x = double(7, 4)
    x[[2, 5]] = x[[0, 0]]  # same direction as the first: the closest pairs there are
    plain = laws.value_and_gradient(lambda z: relaxed_contrastive(z, LABELS, beta=0.0, mining=mining), x)
    off = laws.value_and_gradient(lambda z: relaxed_contrastive(z, LABELS, threshold=1.1, mining=mining), x)
    on = relaxed_contrastive(x, LABELS, threshold=0.7, mining=mining)
    assert all(torch.equal(a, b) for a, b in zip(plain, off, strict=True))
    assert on > off[0]


def test_the_penalty_of_coinciding_samples_is_log_two():
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([3, 3])
    assert relaxed_contrastive(x, labels, beta=0.7).item() == pytest.approx(0.7 * math.log(2))


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_the_penalty_starts_at_the_threshold_itself(mining):
    x, labels = torch.eye(2, dtype=torch.float64), torch.tensor([3, 3])
    at = relaxed_contrastive(x, labels, 1.0, threshold=0.0, mining=mining)
    assert at.item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert relaxed_contrastive(x, labels, 1.0, threshold=1e-9, mining=mining) == 0


def test_scale_and_order_of_samples_do_not_matter(double):
    x, order = double(7, 4), torch.tensor([3, 0, 6, 2, 5, 1, 4])
    value = relaxed_contrastive(x, LABELS)
    torch.testing.assert_close(relaxed_contrastive(5 * x[order], LABELS[order]), value)


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_edge_cases(mining, laws, double):
    def loss(x, labels, **knobs):
        return laws.value_and_gradient(
            lambda z: relaxed_contrastive(z, torch.tensor(labels), mining=mining, **knobs), x
        )

    value, gradient = loss(double(1, 4), [2])  # one sample
    assert value == 0
    assert (gradient == 0).all()
    value, gradient = loss(double(4, 4), [1, 1, 1, 1], beta=0.0)  # nothing to be pushed from
    assert value == 0
    assert (gradient == 0).all()
    check(laws, double(4, 4), torch.tensor([1, 1, 1, 1]), threshold=-1.0, mining=mining)  # the penalty remains
    check(laws, double(4, 4), torch.tensor([1, 1, 1, 0]), mining=mining)  # a single negative
    value, _ = check(laws, double(3, 4), torch.arange(3), threshold=-1.0, mining=mining)  # everyone is alone
    assert value == loss(double(3, 4), [0, 1, 2], tau=0.3, beta=0.0)[0]
    x = double(5, 4)
    x[1] = 0
    for rows in (x, torch.zeros(5, 4, dtype=torch.float64), torch.ones(5, 4, dtype=torch.float64)):
        value, gradient = loss(rows, [0, 0, 1, 1, 2])
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
    assert (loss(x, [0, 0, 1, 1, 2])[1][1] == 0).all()


@pytest.mark.parametrize("mining", ["hard", "all"])
def test_padding_and_vmap(mining, laws, double):
    def loss(x, labels, mask=None):
        return relaxed_contrastive(x, labels, 0.1, 1.0, 0.0, mining=mining, mask=mask)

    laws.padding(loss, double(7, 4), LABELS)
    laws.padding(loss, double(1, 4), torch.tensor([2]))
    laws.padding(loss, double(3, 4), torch.tensor([1, 1, 1]))
    labels = torch.stack((LABELS, torch.zeros(7, dtype=torch.int64), torch.arange(7)))
    laws.vmap(loss, double(3, 7, 4), labels)
    masks = torch.tensor([[1.0] * 7, [1.0] + [0.0] * 6, [1.0, 0.0] * 3 + [1.0]])
    laws.vmap(loss, double(3, 7, 4), labels, masks)
    nothing = loss(double(7, 4).requires_grad_(), LABELS, torch.zeros(7))
    assert nothing == 0
    assert nothing.requires_grad


def test_the_term_averages_over_stages(step, double):
    stages = (double(6, 3, seed=1), double(6, 8, seed=2), double(6, 5, seed=3))
    view = replace(step(), stages=stages, mask=torch.tensor([1, 1, 1, 1, 1, 0.0]))
    knobs = (0.2, 0.7, 0.1)
    term = RelaxedContrastive(tau=0.2, beta_rcl=0.7, lambda_rcl=0.1, mining="all")
    each = [relaxed_contrastive(x, view.labels, *knobs, mining="all", mask=view.mask) for x in stages]
    torch.testing.assert_close(term(view).value, sum(each) / 3)
    one = replace(view, stages=stages[:1], mask=None)
    torch.testing.assert_close(
        RelaxedContrastive(beta_rcl=0.0)(one).value, reference(stages[0], view.labels, 0.05, 0.0, 0.7, "hard")
    )


def test_the_term_is_registered_and_taps_the_model():
    assert registry.get("relaxed_contrastive").make is RelaxedContrastive
    assert RelaxedContrastive.name == "rcl"
    assert RelaxedContrastive().taps == "plain"
    assert RelaxedContrastive(feature_relu=True).taps == "relu"
    assert RelaxedContrastive().teachers == ()


def test_a_model_without_stages_is_refused(step):
    with pytest.raises(Misconfigured, match=r"this model names no stages\. .* the attribute `stages`"):
        RelaxedContrastive()(step())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"activations": torch.ones(7, 4, 2, 2)}, r"activations of shape .* \[batch, channels\] expected"),
        ({"labels": LABELS[:3]}, r"labels of shape \(3,\) given; \[7\] expected"),
        ({"mask": torch.ones(3)}, r"mask of shape \(3,\) given; \[7\] expected"),
        ({"mining": "hart"}, "unknown mining 'hart'. Did you mean 'hard'"),
        ({"tau": 0}, "tau=0 must be positive"),
    ],
)
def test_wrong_input_is_refused(wrong, message):
    good = {"activations": torch.ones(7, 4), "labels": LABELS}
    assert torch.isfinite(relaxed_contrastive(**good))
    with pytest.raises(Misconfigured, match=message):
        relaxed_contrastive(**good | wrong)


def test_bad_knobs_are_refused_when_the_term_is_made():
    with pytest.raises(Misconfigured, match="tau=0 must be positive"):
        RelaxedContrastive(tau=0)
    with pytest.raises(Misconfigured, match="unknown mining 'every'"):
        RelaxedContrastive(mining="every")
