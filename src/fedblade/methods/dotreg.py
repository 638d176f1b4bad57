"""Dot-Regression: pull features to their fixed class vectors, without pushing (Yang et al., NeurIPS 2022; FedDr+)."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from fedblade import payloads
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import Method, Own
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.heads import EtfDirectHead
from fedblade.losses import DotRegression
from fedblade.regularisers.distillation import fd
from fedblade.server import average

TunedLoss = Literal["dotreg", "feddr_plus"]


@dataclass(frozen=True)
class FineTuning:
    """Fine-tuning: only on dot regression, or on FedDr+'s mixture with the final global model as the teacher.

    A regulariser in the method's name is added to the chosen loss.
    """

    loss: TunedLoss

    def __post_init__(self) -> None:
        if self.loss not in get_args(TunedLoss):
            raise Misconfigured(f"unknown ft.loss {self.loss!r}.{nearest(str(self.loss), get_args(TunedLoss))}")


TUNED_BY_DOTREG = FineTuning("dotreg")


@methods.register(paper="arXiv:2203.09081", tune={"lr": (0.1, 0.35, 1.0, 5.0)})
def dotreg(ft: FineTuning = TUNED_BY_DOTREG) -> Method:
    """Pull every feature to its class vector of a fixed simplex classifier.

    Objective: L_k = L_DR = mean_i ½(cos(z_i, v_{y_i}) − 1)², V a fixed simplex ETF. Prediction: argmax_c cos(z, v_c).
    Fine-tuning with `feddr_plus` uses FedDr+'s default β = 0.9.
    """
    method = Method(head=EtfDirectHead(), losses=(DotRegression(),), sums=payloads.MODEL, server=average)
    if ft.loss == "dotreg":
        return method
    return replace(method, own=Own(finetune=(Phase(losses=fd()(method).losses),)))
