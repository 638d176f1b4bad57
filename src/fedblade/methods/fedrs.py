"""FedRS: restricted softmax for classes that a client lacks (Li and Zhan, KDD 2021)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.losses import RestrictedCrossEntropy
from fedblade.methods.fedavg import fedavg


@methods.register(paper="doi:10.1145/3447548.3467254", tune={"alpha_rs": (0.1, 0.5, 0.9)})
def fedrs(alpha_rs: float = 0.5, weights: Literal["paper", "authors"] = "paper") -> Method:
    """Slow down the classifier vectors of classes that the client lacks.

    Objective: L_k = CE of ρ_c·ℓ_c, ρ_c = 1 for the client's classes and α for others. Prediction: plain logits.
    With `weights = "authors"`, as in the authors' code, ρ_c = α + (1−α)·p_c/max p, p_c the client's share of class c.
    """
    return replace(fedavg(), losses=(RestrictedCrossEntropy(alpha_rs=alpha_rs, weights=weights),))
