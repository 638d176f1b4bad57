"""FedDr+: dot regression with distillation of the global features (Kim et al., 2024)."""

from dataclasses import replace
from typing import Literal

from fedblade.core.method import Method, Own
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.methods.dotreg import FineTuning, dotreg
from fedblade.regularisers.distillation import fd

TUNED_BY_FEDDR_PLUS = FineTuning("feddr_plus")


@methods.register(paper="arXiv:2406.02355", tune={"beta": (0.5, 0.9, 0.99), "lr": (0.1, 0.35, 1.0)})
def feddr_plus(
    beta: float = 0.9, teacher_norm: Literal["eval", "batch"] = "eval", ft: FineTuning = TUNED_BY_FEDDR_PLUS
) -> Method:
    """Pull the features to fixed class vectors and keep them near those of the global model.

    Objective: L_k = β·L_DR + (1 − β)·L_FD, with L_DR = mean_i ½(cos(z_i, v_{y_i}) − 1)² and
    L_FD = mean_i ‖z_i − z_i^g‖²/d, z^g the features of the model received. The same as `dotreg+fd`.
    Prediction: argmax_c cos(z, v_c). Fine-tuning has the same β, and the final global model as its teacher.
    """
    base = dotreg()
    method = fd(beta, teacher_norm)(base)
    if ft.loss == "feddr_plus":
        return method
    return replace(method, own=Own(finetune=(Phase(losses=base.losses),)))
