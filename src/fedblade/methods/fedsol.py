"""FedSOL: the task's gradient at weights perturbed along a proximal gradient (Lee et al., CVPR 2024)."""

import math
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import Method
from fedblade.core.phase import Lookahead, MoveView, Phase
from fedblade.core.registry import methods
from fedblade.core.tree import Tree, tree_norm
from fedblade.core.views import Teacher
from fedblade.losses import KnowledgeDistillation
from fedblade.methods.fedavg import fedavg

PERTURBATIONS = ("adaptive", "fixed")
SMALLEST_GRADIENT = 1e-6
"""A shorter gradient of the distillation is only rounding: student and teacher agree."""


def _perturb(view: MoveView, *, rho: float, adaptive: bool) -> Tree:
    """Move to w + ρ·Λ⊙g/‖g‖, ‖·‖ over all tensors, or stay at w if g is only rounding."""
    norm = tree_norm(view.gradient)
    step = torch.where(norm < SMALLEST_GRADIENT, 0.0, rho / (norm + 1e-12))
    return {
        name: leaf + step.to(leaf.dtype) * (_moved(leaf, view.anchor[name]) if adaptive else 1.0) * view.gradient[name]
        for name, leaf in view.params.items()
    }


def _moved(leaf: Tensor, start: Tensor) -> Tensor:
    """|w − w^t|, scaled to unit length along the first axis for each index of the other axes; 0 for length 0."""
    gap = (leaf - start).abs()
    length = torch.linalg.vector_norm(gap, dim=0, keepdim=True)
    return torch.where(length > 0, gap / length, 0.0)


@methods.register(paper="arXiv:2308.12532", tune={"rho": (0.5, 1.0, 2.0)})
def fedsol(
    rho: float = 2.0,
    tau: float = 3.0,
    perturbation: Literal["adaptive", "fixed"] = "adaptive",
    teacher_norm: Literal["eval", "batch"] = "eval",
) -> Method:
    """Compute the gradient of every step at weights that are moved away from the received model's predictions.

    Objective: CE, its gradient taken at w + ρ·Λ⊙g_p/‖g_p‖ and applied at w, with
    g_p = ∇KL(softmax(ℓ^g/τ) ‖ softmax(ℓ/τ)), ℓ^g the logits of the received model. Λ is |w − w^t| scaled to unit length
    along the first axis of each tensor (`adaptive`) or 1 (`fixed`). Statistics are updated only at w.
    Deviation: Λ = 0 where w = w^t, and no perturbation where ‖g_p‖ < 1e-6; the paper defines neither. The default ρ is
    FedDr+'s; the authors' code has 1. The code of FedDr+ has `perturbation = "fixed"`.
    """
    if not 0 <= rho < math.inf:
        raise Misconfigured(f"rho={rho!r}: expected a number from 0 on, such as 2.")
    if perturbation not in PERTURBATIONS:
        raise Misconfigured(f"unknown perturbation {perturbation!r}.{nearest(str(perturbation), PERTURBATIONS)}")
    distillation = KnowledgeDistillation(tau=tau, squared=False, teacher=Teacher(norm=teacher_norm))
    move = partial(_perturb, rho=rho, adaptive=perturbation == "adaptive")
    return replace(fedavg(), phases=(Phase(lookahead=Lookahead(move, losses=(distillation,))),))
