"""Loss terms and how they add up to the local objective.

A `Term` is a scalar of the step. A `FeatureTerm` depends on the features only, so that its strength can be balanced
against the gradient of the supervised terms. A `GradientTerm` adds a tree to the gradient without building a graph.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.tree import Tree
from fedblade.core.views import StepView, Tap, Teacher


@dataclass(frozen=True)
class TermValue:
    """A term's value and its logs: `count_*` entries are added up over steps, other entries are averaged."""

    value: Tensor
    logs: Mapping[str, Tensor] = field(default_factory=dict)


def check_weight(name: str, given: float) -> None:
    """Refuse a weight that is negative or not finite; `name` is the user's name for it."""
    if not 0 <= given < math.inf:
        raise Misconfigured(f"{name}={given!r}: expected a number from 0 on; 0 leaves the term out.")


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """A scalar loss, multiplied by `weight`.

    `taps` asks for the outputs of the body's stages, with or without a ReLU. `teachers` are the frozen models that the
    term compares with. A term that reads `view.round` must have `by_round = True`.
    """

    name: ClassVar[str]
    supervised: ClassVar[bool] = False
    by_round: ClassVar[bool] = False
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(f"{self.name}.weight", self.weight)

    @property
    def taps(self) -> Tap:
        """Which outputs of the body's stages the term reads."""
        return "none"

    @property
    def teachers(self) -> tuple[Teacher, ...]:
        """The teachers whose output for the batch the term reads."""
        return ()

    @abstractmethod
    def __call__(self, view: StepView) -> TermValue:
        """The unweighted value for one client and one batch."""


@dataclass(frozen=True, kw_only=True)
class FeatureTerm(ABC):
    """A scalar loss of the features [batch, dim] alone.

    With `balance` ρ the weight only switches the term on or off. Its strength in each step is
    λ = ρ·‖∂L_sup/∂z‖ / ‖∂L/∂z‖, which the gradient takes as a constant. In round t (the first is 0) a `warmup` of W
    rounds multiplies weight and ρ by min(1, (t + 1)/(W + 1)).
    """

    name: ClassVar[str]
    weight: float = 1.0
    balance: float | None = None
    warmup: int = 0

    def __post_init__(self) -> None:
        check_weight(f"{self.name}.weight", self.weight)
        if self.balance is not None and not (isinstance(self.balance, int | float) and 0 <= self.balance < math.inf):
            raise Misconfigured(f"balance={self.balance!r} must be 0 or more, e.g. 0.1, or 'none' for a fixed weight.")
        if self.warmup < 0:
            raise Misconfigured(f"warmup={self.warmup}: expected a number of rounds; 0 is full strength at once.")

    @abstractmethod
    def __call__(self, features: Tensor, mask: Tensor | None) -> TermValue:
        """The unweighted value for one batch of features."""

    @property
    def by_round(self) -> bool:
        """Whether the strength depends on the round."""
        return self.warmup > 0

    @property
    def is_on(self) -> bool:
        """Whether the term contributes anything."""
        return self.weight != 0 and self.balance != 0


@dataclass(frozen=True, kw_only=True)
class GradientTerm(ABC):
    """A term given by its gradient with respect to the parameters, multiplied by `weight`.

    A term that reads `view.round` must have `by_round = True`.
    """

    name: ClassVar[str]
    by_round: ClassVar[bool] = False
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_weight(f"{self.name}.weight", self.weight)

    @abstractmethod
    def gradient(self, view: StepView) -> Tree:
        """The tree to add to the gradient; names that it lacks are unchanged."""


AnyTerm: TypeAlias = Term | FeatureTerm | GradientTerm


def active(terms: Sequence[AnyTerm]) -> tuple[AnyTerm, ...]:
    """The terms that contribute, so that a term of weight zero and no term at all give equal results bit for bit."""
    return tuple(t for t in terms if (t.is_on if isinstance(t, FeatureTerm) else t.weight != 0))


@dataclass(frozen=True)
class StepGradient:
    """Gradient of the local objective in one step, with the value of each term and what the terms log."""

    gradient: Tree
    values: Mapping[str, Tensor]
    logs: Mapping[str, Tensor]


@dataclass
class Added:
    """Σ weight·term over all scalar terms and over the supervised ones, each term's value, and the logs.

    Everything is a scalar, or has one entry per client where several are added up at once.
    """

    total: Tensor
    supervised: Tensor
    values: dict[str, Tensor]
    logs: dict[str, Tensor]


Evaluate = Callable[[Sequence[AnyTerm], Tensor], Added]
"""Adds up the given terms at the given features."""


def differentiate(terms: Sequence[AnyTerm], features: Tensor, evaluate: Evaluate, leaves: Tree) -> StepGradient:
    """Gradient of Σ weight·term with respect to `leaves`; the features are a function of the leaves.

    With balanced terms the graph is cut at the features: their strength needs the gradients there, and they add to the
    gradient that goes on into the body. Nothing is computed twice. Features may have a client axis in front,
    [clients, batch, dim]; no client's terms depend on another client's leaves.
    """
    balanced = [term for term in terms if isinstance(term, FeatureTerm) and term.balance is not None]
    if not balanced:
        added = evaluate(terms, features)
        _refuse_detached(added, leaves)
        gradient = dict(zip(leaves, _grad(added.total, list(leaves.values())), strict=True))
        return StepGradient(gradient, added.values, added.logs)
    cut = features.detach().requires_grad_()
    added = evaluate([term for term in terms if term not in balanced], cut)
    at_features, *direct = _grad_or_none(added.total, [cut, *leaves.values()], keep=True)
    at_features = torch.zeros_like(cut) if at_features is None else at_features
    supervised = _grad(added.supervised, [cut])[0]
    for term in balanced:
        alone = evaluate([replace(term, weight=1.0, balance=None)], cut)
        gradient_alone = _grad(alone.total, [cut])[0]
        strength = _strength(term, supervised, gradient_alone)
        at_features = at_features + strength[..., None, None] * gradient_alone
        _record(added.values, term.name, alone.total.detach())
        _log(added.logs, {**alone.logs, "lambda_eff": strength})
    through = _grad(features, list(leaves.values()), at_features)
    gradient = {name: b if a is None else a + b for name, a, b in zip(leaves, direct, through, strict=True)}
    return StepGradient(gradient, added.values, added.logs)


def _refuse_detached(added: Added, leaves: Tree) -> None:
    """Refuse a loss that depends on no trained parameter: its gradient of zero would hide a broken model or term."""
    if added.values and leaves and not added.total.requires_grad:
        raise Misconfigured(
            f"the terms {', '.join(added.values)} do not depend on any trained parameter. "
            f"Look for a detach() or no_grad in the model or in the terms."
        )


def _strength(term: FeatureTerm, supervised: Tensor, gradient: Tensor) -> Tensor:
    """Strength λ = ρ·‖∂L_sup/∂z‖ / ‖∂L/∂z‖ of a term in this step; 0 if the term's gradient is 0."""
    norm, supervised_norm = (torch.linalg.vector_norm(tensor, dim=(-2, -1)) for tensor in (gradient, supervised))
    return torch.where(norm > 0, (term.balance or 0.0) * supervised_norm / (norm + 1e-12), torch.zeros_like(norm))


def add_up(terms: Sequence[AnyTerm], view: StepView) -> Added:
    """Evaluate the terms of one client and one batch."""
    zero = view.features.new_zeros(())
    added = Added(zero, zero, {}, {})
    for term in terms:
        if isinstance(term, GradientTerm):
            continue
        result = term(view) if isinstance(term, Term) else term(view.features, view.mask)
        share = term.weight * result.value
        added.total = added.total + share
        if isinstance(term, Term) and term.supervised:
            added.supervised = added.supervised + share
        _record(added.values, term.name, result.value.detach())
        _log(added.logs, result.logs)
    return added


def _log(logs: dict[str, Tensor], entries: Mapping[str, Tensor]) -> None:
    """Add a term's log: counters of one name are added up, other entries of one name are kept apart."""
    for name, value in entries.items():
        if name.startswith("count_") and name in logs:
            logs[name] = logs[name] + value
        else:
            _record(logs, name, value)


def _record(table: dict[str, Tensor], name: str, value: Tensor) -> None:
    """Enter a value; the second value of a name is called `name_2`, so that neither hides the other."""
    number = 1
    while (key := name if number == 1 else f"{name}_{number}") in table:
        number += 1
    table[key] = value


def _grad(value: Tensor, leaves: list[Tensor], upstream: Tensor | None = None) -> list[Tensor]:
    """Gradient for each leaf of the sum over clients; a leaf that the value does not reach has gradient zero.

    `upstream` is the gradient that arrives at the value. It enters as a factor, which gives the same bits. Handed to
    `torch.autograd.grad`, it would make torch import its symbolic shapes: half a second of every start.
    """
    parts = _grad_or_none(value if upstream is None else value * upstream, leaves)
    return [torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, parts, strict=True)]


def _grad_or_none(value: Tensor, leaves: list[Tensor], *, keep: bool = False) -> list[Tensor | None]:
    """Gradient for each leaf of the sum over clients; None for a leaf that the value does not reach."""
    value = value.sum()
    if not value.requires_grad or not leaves:
        return [None for _ in leaves]
    return list(torch.autograd.grad(value, leaves, allow_unused=True, retain_graph=keep))
