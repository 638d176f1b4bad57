"""FedProto's pull to the global prototypes."""

from dataclasses import replace

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import losses as registry
from fedblade.losses import PrototypeDistance, prototype_distance

LABELS = torch.tensor([0, 3, 3, 1, 2])
HAS = torch.tensor([True, False, True, True])


def reference(z, labels, prototypes, has):
    held = [i for i, label in enumerate(labels.tolist()) if has[label]]
    return sum((z[i] - prototypes[labels[i]]).square().sum() / z.shape[1] for i in held) / len(held)


@pytest.mark.parametrize("has", [HAS, HAS.double(), torch.ones(4)])
def test_value_and_gradient_match_the_loop(has, laws, double):
    z, prototypes = double(5, 6), double(4, 6, seed=1)
    ours = laws.value_and_gradient(lambda x: prototype_distance(x, LABELS, prototypes, has), z)
    laws.same(ours, laws.value_and_gradient(lambda x: reference(x, LABELS, prototypes, has), z))


def test_the_comparison_rejects_a_sum_over_dimensions(laws, double):
    z, prototypes = double(5, 6), double(4, 6, seed=1)
    with pytest.raises(AssertionError):
        laws.same(
            laws.value_and_gradient(lambda x: 6 * prototype_distance(x, LABELS, prototypes, HAS), z),
            laws.value_and_gradient(lambda x: reference(x, LABELS, prototypes, HAS), z),
            1e-3,
        )


def test_samples_without_a_prototype_are_left_out_whatever_its_row_holds(laws, double):
    z, prototypes = double(5, 6), double(4, 6, seed=1)
    exact = laws.value_and_gradient(lambda x: prototype_distance(x, LABELS, prototypes, HAS), z)
    prototypes[1] = torch.nan
    value, gradient = laws.value_and_gradient(lambda x: prototype_distance(x, LABELS, prototypes, HAS), z)
    laws.same((value, gradient), exact)
    assert (gradient[3] == 0).all()


def test_no_prototype_at_all_is_silent(laws, double):
    garbage = torch.full((4, 6), torch.nan, dtype=torch.float64)
    value, gradient = laws.value_and_gradient(
        lambda x: prototype_distance(x, LABELS, garbage, torch.zeros(4)), double(5, 6)
    )
    assert value == 0
    assert (gradient == 0).all()


def test_features_at_their_prototype_cost_nothing_and_prototypes_are_constants(double):
    prototypes = double(4, 6, seed=1).requires_grad_()
    z = prototypes.detach()[LABELS].requires_grad_()
    value = prototype_distance(z, LABELS, prototypes, HAS)
    assert value == 0
    value.backward()
    assert prototypes.grad is None
    assert (z.grad == 0).all()


def test_a_single_sample(laws, double):
    z, prototypes = double(1, 6), double(4, 6, seed=1)
    ours = laws.value_and_gradient(lambda x: prototype_distance(x, LABELS[:1], prototypes, HAS), z)
    laws.same(ours, (((z - prototypes[:1]) ** 2).mean(), (z - prototypes[:1]) / 3))


def test_padding_and_vmap(laws, double):
    prototypes = double(4, 6, seed=1)
    laws.padding(lambda z, y, mask: prototype_distance(z, y, prototypes, HAS, mask=mask), double(5, 6), LABELS)
    labels = torch.stack((LABELS, LABELS.flip(0), LABELS.roll(1)))
    has = torch.stack((HAS, ~HAS, torch.zeros(4, dtype=torch.bool)))
    laws.vmap(prototype_distance, double(3, 5, 6), labels, double(3, 4, 6, seed=1), has)
    nothing = prototype_distance(double(5, 6).requires_grad_(), LABELS, prototypes, HAS, mask=torch.zeros(5))
    assert nothing == 0
    assert nothing.requires_grad


def test_the_term_reads_the_step(step):
    view = step()
    term = registry.get("prototype_distance").make(weight=0.5)
    assert term == PrototypeDistance(weight=0.5)
    assert (term.name, term.supervised) == ("proto", False)
    state = view.server["prototypes"]
    assert term(view).value == prototype_distance(view.features, view.labels, state["mean"], state["has"])
    mask = torch.tensor([1, 1, 0, 0, 1, 1])
    masked = prototype_distance(view.features, view.labels, state["mean"], state["has"], mask=mask)
    assert term(replace(view, mask=mask)).value == masked


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": torch.ones(5)}, r"features of shape \(5,\) given"),
        ({"labels": LABELS[:2]}, r"labels of shape \(2,\) given"),
        ({"prototypes": torch.ones(4, 5)}, r"prototypes of shape \(4, 5\) given; \[4, 6\] expected"),
        ({"has": HAS[:3]}, r"has of shape \(3,\) given; \[4\] expected"),
        ({"mask": torch.ones(3)}, r"mask of shape \(3,\) given; \[5\] expected"),
    ],
)
def test_bad_input_is_refused(wrong, message):
    good = {"features": torch.ones(5, 6), "labels": LABELS, "prototypes": torch.ones(4, 6), "has": HAS}
    with pytest.raises(Misconfigured, match=message):
        prototype_distance(**good | wrong)
