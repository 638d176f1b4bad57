"""The local objective: weights, switches, and the balance of decorrelation terms (X-1)."""

import inspect
from dataclasses import MISSING, dataclass, fields, replace
from typing import ClassVar

import pytest
import torch

from fedblade.core.errors import Misconfigured
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.core.streams import Streams
from fedblade.core.terms import FeatureTerm, GradientTerm, Term, TermValue, active, add_up, differentiate
from fedblade.core.views import StepView
from fedblade.heads import EtfProjectorHead, LinearHead
from fedblade.losses import BalancedCrossEntropy, CrossEntropy, FedDecorr, LDDecorr, Proximal
from fedblade.methods.fedavg import fedavg

BATCH, DIM = 8, 6


@dataclass(frozen=True)
class Step:
    """One step in which the features themselves are the body's parameter `z`."""

    head: object = LinearHead()
    batch: int = BATCH
    same: bool = False

    def slope(self, *terms):
        start = self.head.init(DIM, 3, Streams(0))
        params = {name: leaf.double().requires_grad_() for name, leaf in start.params.items()}
        fixed = {name: leaf.double() for name, leaf in start.fixed.items()}
        z = torch.randn(self.batch, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        z = (z[:1].repeat(self.batch, 1) if self.same else z).requires_grad_()

        def view_at(features):
            return StepView(
                params=params,
                anchor=params,
                fixed=fixed,
                head=self.head,
                features=features,
                output=self.head(params, fixed, features),
                labels=torch.arange(self.batch) % 3,
                counts=torch.tensor([4, 3, 1]),
                server={},
                client={},
                round=0,
            )

        return differentiate(terms, z * 1, lambda some, at: add_up(some, view_at(at)), {**params, "z": z})

    def at_features(self, *terms):
        return self.slope(*terms).gradient["z"]


@dataclass(frozen=True, kw_only=True)
class Scaled(FeatureTerm):
    """A decorrelation term multiplied by a constant."""

    name: ClassVar[str] = "decorr"
    factor: float = 1.0

    def __call__(self, features, mask):
        return TermValue(self.factor * LDDecorr()(features, mask).value)


SUPERVISED = {"ce": (CrossEntropy(), LinearHead()), "bce": (BalancedCrossEntropy(), EtfProjectorHead())}
DECORR = [LDDecorr, FedDecorr]


@pytest.mark.parametrize("kind", DECORR)
@pytest.mark.parametrize("supervised", SUPERVISED)
@pytest.mark.parametrize("balance", [0.03, 0.1, 1.0, 3.0])
def test_a_balanced_term_pulls_with_the_chosen_share(kind, supervised, balance):
    base, head = SUPERVISED[supervised]
    step = Step(head)
    alone = step.at_features(base)
    extra = step.at_features(base, kind(balance=balance)) - alone
    assert (extra.norm() / alone.norm()).item() == pytest.approx(balance, rel=1e-10)


@pytest.mark.parametrize("kind", DECORR)
def test_a_balanced_term_keeps_the_direction_of_its_gradient(kind):
    extra = Step().at_features(CrossEntropy(), kind(balance=0.5)) - Step().at_features(CrossEntropy())
    own = Step().at_features(kind())
    cosine = torch.nn.functional.cosine_similarity(extra.flatten(), own.flatten(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-12)


def test_the_balance_is_against_the_supervised_terms_only():
    """Another term of the method does not enlarge the pull that decorrelation is measured by."""
    both = (CrossEntropy(), FedDecorr(weight=5.0))
    extra = Step().at_features(*both, LDDecorr(balance=0.5)) - Step().at_features(*both)
    pull = Step().at_features(CrossEntropy())
    assert (extra.norm() / pull.norm()).item() == pytest.approx(0.5, rel=1e-10)


def test_the_pull_counts_the_weight_of_the_supervised_term():
    double = CrossEntropy(weight=2.0)
    extra = Step().at_features(double, LDDecorr(balance=0.5)) - Step().at_features(double)
    assert (extra.norm() / Step().at_features(CrossEntropy()).norm()).item() == pytest.approx(1.0, rel=1e-10)


def test_a_balanced_term_needs_a_supervised_one():
    with pytest.raises(Misconfigured, match="none is marked supervised"):
        replace(fedavg(), losses=(LDDecorr(balance=0.5),))
    with pytest.raises(Misconfigured, match="none is marked supervised"):
        replace(fedavg(), phases=(Phase(losses=(LDDecorr(balance=0.5),)),))
    replace(fedavg(), losses=(LDDecorr(balance=0.0),))


@pytest.mark.parametrize("kind", DECORR)
@pytest.mark.parametrize("head", [LinearHead(), EtfProjectorHead()])
def test_a_balanced_term_reaches_no_weight_of_the_head(kind, head):
    alone = Step(head).slope(CrossEntropy()).gradient
    both = Step(head).slope(CrossEntropy(), kind(balance=0.5)).gradient
    assert all(torch.equal(alone[name], both[name]) for name in alone if name != "z")
    assert all(alone[name].any() for name in alone)


@pytest.mark.parametrize("factor", [1e-6, 0.37, 1e6])
def test_rescaling_a_balanced_loss_changes_nothing(factor):
    """Up to the 1e-12 that the rule adds to the norm."""
    one, other = (Step().at_features(CrossEntropy(), Scaled(balance=0.2, factor=f)) for f in (1.0, factor))
    norm = Step().at_features(LDDecorr()).norm().item()
    assert ((one - other).norm() / one.norm()).item() <= 2e-12 / (norm * min(factor, 1)) + 1e-14


def test_the_weight_of_a_balanced_term_is_only_a_switch():
    slopes = [Step().at_features(CrossEntropy(), LDDecorr(weight=w, balance=0.2)) for w in (0.005, 7.0)]
    assert torch.equal(*slopes)


def test_a_balanced_term_is_a_fixed_weight_that_happens_to_fit():
    balanced = Step().slope(CrossEntropy(), LDDecorr(balance=0.2))
    strength = balanced.logs["lambda_eff"]
    pull, own = Step().at_features(CrossEntropy()), Step().at_features(LDDecorr())
    assert not strength.requires_grad
    assert strength.item() == pytest.approx(0.2 * (pull.norm() / own.norm()).item(), rel=1e-10)
    fixed = Step().slope(CrossEntropy(), LDDecorr(weight=strength.item()))
    for name, leaf in fixed.gradient.items():
        torch.testing.assert_close(balanced.gradient[name], leaf, rtol=1e-12, atol=1e-14)
    assert balanced.values == fixed.values
    assert fixed.logs.items() <= balanced.logs.items()


@pytest.mark.parametrize("kind", DECORR)
@pytest.mark.parametrize("balance", [None, 0.2])
def test_a_batch_of_one_feels_nothing(kind, balance):
    step = Step(batch=1)
    result = step.slope(CrossEntropy(), kind(balance=balance))
    assert torch.equal(result.gradient["z"], step.at_features(CrossEntropy()))
    assert result.values["decorr"] == 0


def test_identical_samples_have_nothing_to_balance():
    step = Step(same=True)
    assert torch.equal(step.at_features(CrossEntropy(), LDDecorr(balance=0.2)), step.at_features(CrossEntropy()))


OFF = [LDDecorr(weight=0.0), LDDecorr(balance=0.0), CrossEntropy(weight=0.0), Proximal(weight=0.0)]


@pytest.mark.parametrize("off", [*OFF, LDDecorr(weight=0.0, balance=0.3)])
def test_terms_of_no_weight_are_not_active(off):
    on = BalancedCrossEntropy()
    assert active((on, off)) == (on,)


def test_the_gradient_is_the_weighted_sum_of_the_terms():
    result = Step().slope(CrossEntropy(weight=0.5), LDDecorr(weight=0.01), Proximal(weight=3.0))
    assert result.values.keys() == {"supervised", "decorr"}
    expected = 0.5 * Step().at_features(CrossEntropy()) + 0.01 * Step().at_features(LDDecorr())
    torch.testing.assert_close(result.gradient["z"], expected, rtol=1e-12, atol=1e-15)


def test_reported_values_carry_no_weight():
    plain, heavy = Step().slope(CrossEntropy()), Step().slope(CrossEntropy(weight=3.0))
    assert torch.equal(plain.values["supervised"], heavy.values["supervised"])


def test_two_decorrelation_terms_are_both_reported():
    """`fedblade+feddecorr` has two of them; neither may hide the other in the history."""
    together = [v.item() for v in Step().slope(CrossEntropy(), LDDecorr(), FedDecorr()).values.values()]
    for kind in DECORR:
        assert any(v == pytest.approx(Step().slope(kind()).values["decorr"].item()) for v in together)


def test_two_balanced_terms_each_get_their_share():
    one, two = LDDecorr(balance=0.2), FedDecorr(balance=0.3)
    base = Step().at_features(CrossEntropy())
    both = Step().at_features(CrossEntropy(), one, two) - base
    apart = Step().at_features(CrossEntropy(), one) + Step().at_features(CrossEntropy(), two) - 2 * base
    torch.testing.assert_close(both, apart, rtol=1e-12, atol=1e-15)


def test_a_leaf_that_nothing_reaches_has_gradient_zero():
    gradient = Step().slope(LDDecorr()).gradient
    assert not gradient["head.weight"].any()
    assert not Step().slope().gradient["z"].any()


def test_the_logs_of_two_terms_are_both_kept():
    """Counters are totals over all terms of a step: one that failed must not be hidden by one that did not."""
    one, other = LDDecorr(), LDDecorr(eps=1e-2)
    apart = [Step().slope(term).logs["ld_centered"].item() for term in (one, other)]
    together = {name: value.item() for name, value in Step().slope(CrossEntropy(), one, other).logs.items()}
    assert all(any(value == pytest.approx(each) for value in together.values()) for each in apart)


def all_terms():
    """Every term that the library defines, with None for what has no default."""
    for name in methods.names():
        methods.get(name)
    left, found = [Term, FeatureTerm, GradientTerm], []
    while left:
        kind = left.pop()
        left.extend(kind.__subclasses__())
        if kind.__module__.startswith("fedblade.") and not inspect.isabstract(kind):
            needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
            found.append((kind, dict.fromkeys(needed)))
    return found


def test_there_are_terms_of_every_sort():
    kinds = {kind.__name__ for kind, _ in all_terms()}
    assert kinds > {"CrossEntropy", "LDDecorr", "Uniformity", "StructuredDeCov", "Proximal", "Dynamic", "Generated"}


@pytest.mark.parametrize("weight", [-1.0, -1e-9, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused_by_every_term(weight):
    for kind, needed in all_terms():
        with pytest.raises(Misconfigured, match=rf"{kind.name}\.weight={weight}: expected a number from 0 on"):
            kind(weight=weight, **needed)
        kind(weight=0.0, **needed)


@pytest.mark.parametrize("balance", [-0.1, float("nan"), float("inf")])
def test_a_balance_that_is_none_is_refused_by_every_term(balance):
    for kind, needed in all_terms():
        if issubclass(kind, FeatureTerm):
            with pytest.raises(Misconfigured, match=f"balance={balance} must be 0 or more"):
                kind(balance=balance, **needed)


def test_a_warm_up_of_less_than_no_rounds_is_refused_by_every_term():
    for kind, needed in all_terms():
        if issubclass(kind, FeatureTerm):
            with pytest.raises(Misconfigured, match="warmup=-1: expected a number of rounds"):
                kind(warmup=-1, **needed)
            assert kind(warmup=1, **needed).by_round
            assert not kind(**needed).by_round
