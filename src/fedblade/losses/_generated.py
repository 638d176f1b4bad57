"""Generated features: train the classifier on them, and match its predictions for generated features of the label."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.terms import Term, TermValue
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._distillation import knowledge_distillation
from fedblade.losses._masking import real_rows

_LEAST = 1e-4
"""The smallest strength that fading reaches."""


class Generate(Protocol):
    """Features [batch, dim] from a generator's tensors, labels [batch] and uniform draws [batch, nz]."""

    @property
    def nz(self) -> int:
        """Draws per feature."""

    def __call__(self, tensors: Tree, labels: Tensor, draws: Tensor) -> Tensor:
        """The features; the terms stop their gradients."""


def faded(strength: float, fade: float, round_: int) -> float:
    """Strength α_t = max(1e-4, α_0·fade^t) of round t, 0 for α_0 = 0."""
    return max(_LEAST, strength * fade**round_) if strength > 0 else 0.0


def pick_labels(draws: Tensor, present: Tensor) -> Tensor:
    """Labels uniform over the classes that are `present [classes]`, from uniform `draws [batch]`.

    If no class is present, the label is the last class.
    """
    ranks = (draws * present.sum()).floor()
    passed = present.cumsum(0) <= ranks[:, None]
    return passed.sum(1).clamp(max=present.shape[0] - 1)


@dataclass(frozen=True, kw_only=True)
class _FromGenerator(Term):
    """The base of both terms: the generator, the strength α_0 or β_0 and its fading, and the features per sample.

    Both terms read the server state `generator` and `view.noise`: `per_sample`·(1 + nz) draws for `Generated`, then nz
    for `GeneratedMatch`. They are 0 before round 1, because the generator is not trained until then.
    """

    by_round: ClassVar[bool] = True
    generate: Generate
    strength: float = 10.0
    fade: float = 0.98
    per_sample: int = 1

    def __call__(self, view: StepView) -> TermValue:
        """The value times the strength of the round."""
        if view.round < 1:
            return TermValue((real_rows(view.features, view.mask) * 0).sum())
        if view.noise is None:
            raise Misconfigured(f"term '{self.name}' needs draws; set Method.noise = {self.draws_per_sample}.")
        strength = faded(self.strength, self.fade, view.round)
        return TermValue(strength * self.value(view, real_rows(view.noise, view.mask)))

    @property
    def draws_per_sample(self) -> int:
        """Uniform numbers that both terms together need for each sample."""
        return self.per_sample * (1 + self.generate.nz) + self.generate.nz

    @abstractmethod
    def value(self, view: StepView, noise: Tensor) -> Tensor:
        """The term before its strength; rows of padding in `noise` are 0."""

    def logits(self, view: StepView, labels: Tensor, draws: Tensor) -> Tensor:
        """The head's logits of generated features; no gradient reaches the generator."""
        features = self.generate(view.server["generator"], labels, draws).detach()
        return view.head(view.params, view.fixed, features.to(view.features)).logits


@dataclass(frozen=True, kw_only=True)
class Generated(_FromGenerator):
    """Cross-entropy α_t·mean CE(h(G(ỹ, ε)), ỹ) of the head on generated features (FedGen, local objective).

    ỹ is uniform over the labels present in the federation (server state `labels`). With weight `per_sample`, the number
    of generated features over the batch size, this is the term of the authors' code.

    Deviation: the strength and its fading are from the authors' code; the paper adds the term without them.
    """

    name: ClassVar[str] = "generated"

    def value(self, view: StepView, noise: Tensor) -> Tensor:
        """Mean over the features generated for real samples."""
        width = 1 + self.generate.nz
        draws = noise[:, : self.per_sample * width].reshape(-1, width)
        labels = pick_labels(draws[:, 0], view.server["labels"]["present"])
        mask = None if view.mask is None else view.mask.repeat_interleave(self.per_sample)
        return cross_entropy(self.logits(view, labels, draws[:, 1:]), labels, mask=mask)


@dataclass(frozen=True, kw_only=True)
class GeneratedMatch(_FromGenerator):
    """Divergence β_t·mean KL(sg softmax h(G(y, ε)) ‖ softmax ℓ(x)) from predictions for generated features (FedGen).

    Deviation: the term is from the authors' code; the paper's local objective does not have it.
    """

    name: ClassVar[str] = "generated_match"

    def value(self, view: StepView, noise: Tensor) -> Tensor:
        """Mean over the real samples of the batch."""
        target = self.logits(view, real_rows(view.labels, view.mask), noise[:, -self.generate.nz :])
        return knowledge_distillation(view.logits, target, 1.0, mask=view.mask)
