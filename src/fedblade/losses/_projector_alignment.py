"""Projector alignment: global prototypes should project onto their class vectors."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import cosine
from fedblade.losses._checks import check_choice
from fedblade.losses._shapes import check_etf, check_mask, check_matrix

Reduction = Literal["sum", "mean"]


def projector_alignment(
    projected_prototypes: Tensor, etf: Tensor, mask: Tensor, *, reduction: Reduction = "sum"
) -> Tensor:
    """Sum over classes with a prototype of ½(1 - cos(q_c, v_c))² (FedBlade, Eq. 15).

    `projected_prototypes [classes, space]` q, `etf [space, classes]` v, `mask [classes]` says which classes have a
    prototype; rows of other classes are ignored. Without prototypes the value and all gradients are 0.

    Deviation: the paper's sum has all classes and does not say what happens before a class has a prototype.
    """
    check_choice("reduction", reduction, ("sum", "mean"))
    check_matrix("projected_prototypes", projected_prototypes, "[classes, space]")
    check_etf(etf, projected_prototypes.shape[1], projected_prototypes.shape[0])
    check_mask(mask, projected_prototypes)
    has = mask != 0
    rows = torch.where(has[:, None], projected_prototypes, torch.zeros_like(projected_prototypes))
    distance = (1 - cosine(rows, etf.mT)).square() / 2
    total = torch.where(has, distance, torch.zeros_like(distance)).sum()
    return total if reduction == "sum" else total / has.sum().clamp(min=1)


@losses.register("projector_alignment", paper="FedBlade, Eq. 15")
@dataclass(frozen=True, kw_only=True)
class ProjectorAlignment(Term):
    """Align the projected global prototypes with the class vectors; the gradient reaches only the projector.

    Reads the server state `prototypes`: `mean` [classes, dim] and `has` [classes].
    """

    name: ClassVar[str] = "pa"
    reduction: Reduction = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("reduction", self.reduction, ("sum", "mean"))

    def __call__(self, view: StepView) -> TermValue:
        """One value per batch; it does not depend on the samples of the batch."""
        prototypes = view.server["prototypes"]
        projected = view.head.project(view.params, prototypes["mean"].detach())
        return TermValue(projector_alignment(projected, view.fixed["etf"], prototypes["has"], reduction=self.reduction))
