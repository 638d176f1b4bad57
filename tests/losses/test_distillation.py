from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.core.views import Teacher, TeacherOutput
from fedblade.heads import LinearHead
from fedblade.losses import (
    FeatureDistillation,
    KnowledgeDistillation,
    LogitDistillation,
    NotTrueDistillation,
    feature_distillation,
    knowledge_distillation,
    logit_distillation,
    not_true_distillation,
)

LABELS = torch.tensor([0, 2, 2, 1, 3])
BATCH_NORM = Teacher(norm="batch")


def divergence(p, q):
    return sum(a * (a / b).log() for a, b in zip(p, q, strict=True))


def softened(row, classes, tau):
    weights = [(row[c] / tau).exp() for c in classes]
    return [w / sum(weights) for w in weights]


def reference_kd(logits, taught, tau):
    terms = []
    for row, other in zip(logits, taught, strict=True):
        classes = range(len(row))
        terms.append(divergence(softened(other, classes, tau), softened(row, classes, tau)))
    return tau**2 * sum(terms) / len(terms)


def reference_ntd(logits, taught, labels, tau):
    terms = []
    for row, other, label in zip(logits, taught, labels.tolist(), strict=True):
        classes = [c for c in range(len(row)) if c != label]
        terms.append(divergence(softened(other, classes, tau), softened(row, classes, tau)))
    return tau**2 * sum(terms) / len(terms)


def reference_ld(logits, taught):
    rows, classes = logits.shape
    return sum((logits[i, c] - taught[i, c]) ** 2 / classes for i in range(rows) for c in range(classes)) / rows


@settings(max_examples=20, deadline=None)
@given(tau=st.floats(0.3, 5), size=st.sampled_from([0.1, 1, 4]), seed=st.integers(0, 99))
def test_values_and_gradients_match_the_loops(tau, size, seed, laws, double):
    logits, taught = size * double(5, 4, seed=seed), size * double(5, 4, seed=seed + 1)
    for ours, slow in (
        (lambda x: knowledge_distillation(x, taught, tau), lambda x: reference_kd(x, taught, tau)),
        (lambda x: not_true_distillation(x, taught, LABELS, tau), lambda x: reference_ntd(x, taught, LABELS, tau)),
        (lambda x: logit_distillation(x, taught), lambda x: reference_ld(x, taught)),
    ):
        laws.same(laws.value_and_gradient(ours, logits), laws.value_and_gradient(slow, logits))


def test_comparisons_reject_the_reverse_divergence_and_the_true_class(laws, double):
    logits, taught = double(5, 4), double(5, 4, seed=1)
    with pytest.raises(AssertionError):
        laws.same((knowledge_distillation(logits, taught),), (reference_kd(taught, logits, 3.0),), 1e-3)
    with pytest.raises(AssertionError):
        laws.same((not_true_distillation(logits, taught, LABELS),), (reference_kd(logits, taught, 3.0),), 1e-3)


def test_gradchecks(double):
    taught, x = double(5, 4, seed=1), double(5, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: knowledge_distillation(x, taught), x)
    assert torch.autograd.gradcheck(lambda x: not_true_distillation(x, taught, LABELS), x)
    assert torch.autograd.gradcheck(lambda x: logit_distillation(x, taught), x)


def test_the_squared_temperature_can_be_left_out(double):
    logits, taught = double(5, 4), double(5, 4, seed=1)
    plain = knowledge_distillation(logits, taught, 2.0, squared=False)
    torch.testing.assert_close(4 * plain, knowledge_distillation(logits, taught, 2.0))
    assert knowledge_distillation(logits, taught, 1.0) == knowledge_distillation(logits, taught, 1.0, squared=False)


def test_at_a_high_temperature_it_becomes_the_distance_of_centred_logits(double):
    logits, taught = double(5, 4), double(5, 4, seed=1)
    gap = logits - taught
    expected = (gap - gap.mean(1, keepdim=True)).square().mean(1).mean() / 2
    assert knowledge_distillation(logits, taught, 1e4).item() == pytest.approx(expected.item(), rel=1e-3)


@pytest.mark.parametrize(
    "loss",
    [
        knowledge_distillation,
        lambda x, t: not_true_distillation(x, t, LABELS),
        logit_distillation,
        feature_distillation,
    ],
)
def test_a_student_equal_to_its_teacher_is_left_alone(loss, laws, double):
    for logits in (double(5, 4), 30 * double(5, 4, seed=2), torch.zeros(5, 4, dtype=torch.float64)):
        value, gradient = laws.value_and_gradient(lambda x, t=logits: loss(x, t.clone()), logits)
        assert value == 0
        assert gradient.abs().max() <= 1e-15


def test_the_true_logit_is_never_read(laws, double):
    logits, taught = double(5, 4), double(5, 4, seed=1)
    expected = laws.value_and_gradient(lambda x: not_true_distillation(x, taught, LABELS), logits)
    own = torch.nn.functional.one_hot(LABELS, 4).bool()
    for junk in (1e9, -torch.inf, torch.nan):
        student, teacher = (torch.where(own, junk, each) for each in (logits, taught))
        found = laws.value_and_gradient(lambda x, t=teacher: not_true_distillation(x, t, LABELS), student)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert (expected[1][own] == 0).all()
    assert (expected[1][~own] != 0).all()


@pytest.mark.parametrize("classes", [1, 2])
def test_without_two_other_classes_nothing_is_distilled(classes, laws, double):
    labels = torch.arange(5) % classes
    value, gradient = laws.value_and_gradient(
        lambda x: not_true_distillation(x, double(5, classes, seed=1), labels), double(5, classes)
    )
    assert value == 0
    assert (gradient == 0).all()


def test_large_logits_stay_finite(laws, double):
    logits, taught = 1e4 * double(5, 4), 1e4 * double(5, 4, seed=1)
    for loss in (knowledge_distillation, lambda x, t: not_true_distillation(x, t, LABELS)):
        for part in laws.value_and_gradient(loss, logits, taught):
            assert torch.isfinite(part).all()


def test_teachers_are_constants(double):
    logits, taught = double(5, 4), double(5, 4, seed=1).requires_grad_()
    for value in (
        knowledge_distillation(logits, taught),
        not_true_distillation(logits, taught, LABELS),
        logit_distillation(logits, taught),
    ):
        assert value > 0
        assert not value.requires_grad


def test_padding_and_vmap(laws, double):
    logits, taught = double(5, 4), double(5, 4, seed=1)

    def ntd(x, t, y, mask=None):
        return not_true_distillation(x, t, y, mask=mask)

    laws.padding(knowledge_distillation, logits, taught)
    laws.padding(logit_distillation, logits, taught)
    laws.padding(ntd, logits, taught, LABELS)
    stacked, others = double(3, 5, 4), double(3, 5, 4, seed=1)
    laws.vmap(knowledge_distillation, stacked, others)
    laws.vmap(logit_distillation, stacked, others)
    laws.vmap(ntd, stacked, others, torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1))))


def test_a_batch_without_real_rows_is_a_zero_with_a_graph(double):
    for loss in (knowledge_distillation, logit_distillation):
        value = loss(double(5, 4).requires_grad_(), double(5, 4, seed=1), mask=torch.zeros(5))
        assert value == 0
        assert value.requires_grad


def _taught(view, seed, teacher):
    z = view.features + torch.randn(6, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    output = view.head(view.anchor, view.fixed, z)
    taught = TeacherOutput(z, output, view.head.raw_logits(view.params, view.fixed, output))
    return replace(view, teachers={**view.teachers, teacher: taught})


TERMS = {
    "feature_distillation": (FeatureDistillation, "fd"),
    "knowledge_distillation": (KnowledgeDistillation, "kd"),
    "not_true_distillation": (NotTrueDistillation, "ntd"),
    "logit_distillation": (LogitDistillation, "ld"),
}


@pytest.mark.parametrize("key", TERMS)
def test_terms_are_registered_and_ask_for_their_teacher(key):
    term, name = TERMS[key]
    assert registry.get(key).make is term
    assert term.name == name
    assert not term.supervised
    assert term().teachers == (Teacher(),)
    assert term(teacher=BATCH_NORM).teachers == (BATCH_NORM,)


@pytest.mark.parametrize("head", [None, LinearHead()])
def test_terms_read_the_step_and_their_own_teacher(head, step):
    view = _taught(_taught(step(head=head), 1, Teacher()), 2, BATCH_NORM)
    view = replace(view, mask=torch.tensor([1, 1, 1, 1, 0, 1.0]))
    for teacher in (Teacher(), BATCH_NORM):
        raw, taught = view.head.raw_logits(view.params, view.fixed, view.output), view.teachers[teacher]
        given, m = taught.raw_logits, view.mask
        expected = feature_distillation(view.features, taught.features, mask=m)
        assert FeatureDistillation(teacher=teacher)(view).value == expected
        assert LogitDistillation(teacher=teacher)(view).value == logit_distillation(raw, given, mask=m)
        expected = knowledge_distillation(raw, given, 2.0, squared=False, mask=m)
        assert KnowledgeDistillation(teacher=teacher, tau=2.0, squared=False)(view).value == expected
        assert KnowledgeDistillation(teacher=teacher)(view).value == knowledge_distillation(raw, given, mask=m)
        expected = not_true_distillation(raw, given, view.labels, 2.0, mask=m)
        assert NotTrueDistillation(teacher=teacher, tau=2.0)(view).value == expected


WRONG = {"logits": torch.zeros(5, 4, 2), "teacher_logits": torch.zeros(5, 3), "mask": torch.ones(3)}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("loss", [knowledge_distillation, logit_distillation, not_true_distillation])
def test_wrong_tensors_are_refused(loss, wrong):
    good = {"logits": torch.zeros(5, 4), "teacher_logits": torch.zeros(5, 4)}
    if loss is not_true_distillation:
        good["labels"] = LABELS
    assert loss(**good) == 0
    with pytest.raises(Misconfigured, match=f"^{wrong} of shape .* expected"):
        loss(**good | {wrong: WRONG[wrong]})


def test_wrong_labels_and_temperatures_are_refused():
    zeros = torch.zeros(5, 4)
    with pytest.raises(Misconfigured, match=r"labels of shape \(3,\) given"):
        not_true_distillation(zeros, zeros, LABELS[:3])
    with pytest.raises(Misconfigured, match="labels of dtype"):
        not_true_distillation(zeros, zeros, LABELS.int())
    for make in (KnowledgeDistillation, NotTrueDistillation):
        with pytest.raises(Misconfigured, match="tau=0 must be positive"):
            make(tau=0)
    with pytest.raises(Misconfigured, match="tau=-1 must be positive"):
        not_true_distillation(zeros, zeros, LABELS, -1)
