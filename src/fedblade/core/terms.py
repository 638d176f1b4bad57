"""Loss terms and how they add up to the local objective.

A `Term` is a scalar of the step; a `FeatureTerm` depends on the features alone, which lets its strength be balanced
against the supervised pull; a `GradientTerm` adds a tree to the gradient without building a graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from fedblade.core.tree import Tree
from fedblade.core.views import StepView


@dataclass(frozen=True)
class TermValue:
    """A term's value and what it wants logged: `count_*` entries are added up, others averaged over steps."""

    value: Tensor
    logs: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """A scalar loss, multiplied by `weight`."""

    name: ClassVar[str]
    supervised: ClassVar[bool] = False
    weight: float = 1.0

    @abstractmethod
    def __call__(self, view: StepView) -> TermValue:
        """The unweighted value for one client and one batch."""


@dataclass(frozen=True, kw_only=True)
class FeatureTerm(ABC):
    """A scalar loss of the features [batch, dim] alone.

    With `balance` ρ the weight only says whether the term is on; its strength in each step is
    λ = ρ·‖∂L_sup/∂z‖ / ‖∂L/∂z‖, a constant for the gradient.
    """

    name: ClassVar[str]
    weight: float = 1.0
    balance: float | None = None

    @abstractmethod
    def __call__(self, features: Tensor, mask: Tensor | None) -> TermValue:
        """The unweighted value for one batch of features."""

    @property
    def is_on(self) -> bool:
        """Whether the term contributes anything."""
        return self.weight != 0 and self.balance != 0


@dataclass(frozen=True, kw_only=True)
class GradientTerm(ABC):
    """A term given by its gradient with respect to the parameters, multiplied by `weight`."""

    name: ClassVar[str]
    weight: float = 1.0

    @abstractmethod
    def gradient(self, view: StepView) -> Tree:
        """What to add to the gradient; names that are left out are unchanged."""


AnyTerm: TypeAlias = Term | FeatureTerm | GradientTerm


def active(terms: Sequence[AnyTerm]) -> tuple[AnyTerm, ...]:
    """The terms that contribute, so that a term of weight zero equals its absence bit for bit."""
    return tuple(t for t in terms if (t.is_on if isinstance(t, FeatureTerm) else t.weight != 0))


@dataclass(frozen=True)
class Objective:
    """Value of the local loss in one step, with its parts."""

    total: Tensor
    values: Mapping[str, Tensor]
    logs: Mapping[str, Tensor]


def objective(terms: Sequence[AnyTerm], view: StepView) -> Objective:
    """Σ weight·term over the scalar terms of one step."""
    values: dict[str, Tensor] = {}
    logs: dict[str, Tensor] = {}
    total = view.features.new_zeros(())
    for term in terms:
        if isinstance(term, GradientTerm):
            continue
        if isinstance(term, Term):
            result = term(view)
            contribution = term.weight * result.value
        elif term.balance is None:
            result = term(view.features, view.mask)
            contribution = term.weight * result.value
        else:
            result, contribution = _balanced(term, term.balance, terms, view)
        total = total + contribution
        values[term.name] = result.value.detach()
        logs.update(result.logs)
    return Objective(total, values, logs)


def supervised_gradient(terms: Sequence[AnyTerm], view: StepView) -> Tensor:
    """∂L_sup/∂z for the supervised terms, without touching the weights' gradients."""
    constant = replace(view, params={name: leaf.detach() for name, leaf in view.params.items()})

    def supervised(features: Tensor) -> Tensor:
        at = constant.at(features)
        parts = [t.weight * t(at).value for t in terms if isinstance(t, Term) and t.supervised]
        return torch.stack(parts).sum()

    gradient: Tensor = torch.func.grad(supervised)(view.features.detach())
    return gradient


def _balanced(term: FeatureTerm, balance: float, terms: Sequence[AnyTerm], view: StepView) -> tuple[TermValue, Tensor]:
    """A balanced term's value and its contribution λ·⟨∂L/∂z, z⟩, whose gradient is λ·∂L/∂z.

    The linear form avoids a second pass through the term: its gradient with respect to z is already known.
    """
    features = view.features.detach()

    def value_and_logs(z: Tensor) -> tuple[Tensor, tuple[Tensor, Mapping[str, Tensor]]]:
        result = term(z, view.mask)
        return result.value, (result.value, result.logs)

    own, (value, logs) = torch.func.grad(value_and_logs, has_aux=True)(features)
    pull = supervised_gradient(terms, view)
    own_norm = own.norm()
    assert term.balance is not None  # noqa: S101 - the caller selected balanced terms
    strength = torch.where(own_norm > 0, balance * pull.norm() / (own_norm + 1e-12), own_norm.new_zeros(()))
    linear = (own * view.features).sum()
    contribution = strength * (linear + (value - linear).detach())
    return TermValue(value, {**logs, "lambda_eff": strength}), contribution
