"""FedLC: logits calibrated by the client's class counts (Zhang et al., ICML 2022)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.losses import CalibratedCrossEntropy
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:2209.00189", tune={"tau_lc": (0.1, 0.5, 1.0, 10.0)})
def fedlc(tau_lc: float = 1.0, denominator: Literal["standard", "exclude_true"] = "standard") -> Method:
    """Demand wider margins for the classes that are rare on the client.

    Objective: L_k = CE of ℓ_c − τ·n_c^{−1/4} over the classes that the client holds. Prediction: plain logits.
    Deviation: the paper's denominator leaves out the true class, which is reported to be unstable (`exclude_true`).
    """
    return replace(fedavg(), losses=(CalibratedCrossEntropy(tau_lc=tau_lc, denominator=denominator),))
