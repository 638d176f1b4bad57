"""FedGELA: a fixed simplex classifier that every client rescales to its classes (Fan et al., NeurIPS 2023)."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from fedblade import payloads
from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import Exchange, InitView, Method, Own, model
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree
from fedblade.core.views import EndView, Head, StepView
from fedblade.heads import EtfDirectHead, EtfProjectorHead
from fedblade.losses import AdaptedCrossEntropy, adaptation
from fedblade.personal import local_model
from fedblade.server import average, scale_of

Phi = Literal["identity", "exp", "sqrt"]
SoftmaxClasses = Literal["existing", "all"]
HeadKind = Literal["etf", "projected"]


def etf_head(E_W: float, normalize: bool, temperature: float | Literal["none"] = "none") -> EtfDirectHead:
    """The fixed classifier; its class vectors have the length sqrt(E_W), or 1/temperature if a temperature is given."""
    if not 0 < E_W < math.inf:
        raise Misconfigured(f"E_W={E_W!r}: expected a number above 0, such as 1e4.")
    if temperature != "none" and not 0 < temperature < math.inf:
        raise Misconfigured(f"temperature={temperature!r}: expected a number above 0, such as 1e-5, or 'none'.")
    return EtfDirectHead(normalize=normalize, length=math.sqrt(E_W) if temperature == "none" else 1 / temperature)


def adapted(
    head: Head, phi: Phi | Literal["none"], softmax_classes: SoftmaxClasses, clip: float | Literal["none"]
) -> Method:
    """Averaging of models that train on logits scaled by Φ; a client predicts with its model after local training.

    With `none`, Φ is 1.
    """
    shared = phi in ("exp", "sqrt")
    return Method(
        head=head,
        losses=(AdaptedCrossEntropy(phi=phi, classes=softmax_classes),),
        sums=payloads.MODEL,
        server=average,
        server_state={"phi": _no_reference} if shared else {},
        exchanges=(Exchange("before_run", (_q_sum(phi),), _set_reference),) if shared else (),
        client_state={"local": model},
        client_update={"local": local_model},
        write_only=("local",),
        own=Own(state="local", logits=_personal_logits(phi)),
        clip=None if clip == "none" else clip,
    )


def _personal_logits(phi: Phi | Literal["none"]) -> Callable[[StepView], Tensor]:
    """Φ-scaled logits of the classes that the client holds; other classes cannot be predicted."""

    def logits(view: StepView) -> Tensor:
        reference = view.server["phi"]["reference"] if "phi" in view.server else None
        scale = adaptation(view.counts, phi, reference).to(view.logits.dtype)
        return torch.where(view.counts > 0, view.logits * scale, -torch.inf)

    return logits


def _q_sum(phi: Phi | Literal["none"]) -> Sum:
    """n_k·Q(n_{k,c}/n_k) for each class, and n_k; from these the server computes the mean of Q."""

    def class_q(view: EndView) -> Tree:
        counts = view.counts.double()
        return {"q": counts.sum() * adaptation(view.counts, phi, torch.ones_like(counts)), "samples": counts.sum()}

    return Sum("phi", class_q, bound=1e7)


def _no_reference(view: InitView) -> Tree:
    """The mean of Q [classes] before clients have sent their Q."""
    like = next(iter(view.params.values()))
    return {"reference": torch.zeros(view.num_classes, dtype=like.dtype, device=like.device)}


def _set_reference(state: ServerState, sums: Sums) -> ServerState:
    shared, old = sums["phi"], state.extra["phi"]["reference"]
    return state.replace(extra={**state.extra, "phi": {"reference": (shared["q"] / shared["samples"]).to(old)}})


@methods.register(paper="arXiv:2405.18972", tune={"E_W": (1e4, 1e5, 1e6, 1e7)})
def fedgela(
    E_W: float = 1e4,
    phi: Phi = "identity",
    normalize: bool = True,
    softmax_classes: SoftmaxClasses = "existing",
    temperature: float | Literal["none"] = "none",
    clip: float | Literal["none"] = 20.0,
    head: HeadKind = "etf",
) -> Method:
    """Share one fixed simplex classifier and let each client rescale it by its class shares.

    Objective (Eq. 5): L_k = −mean_i log softmax_{c ∈ C_k}(Φ_{k,c}·sqrt(E_W)·m_cᵀh_i)[y_i], h = z/‖z‖ (h = z without
    `normalize`), M a fixed simplex ETF, C_k the client's classes.
    Φ (Table 6), with x = n_{k,c}/n_k: `identity` C·x; `exp` and `sqrt` Q(x)/Σ_j a_j Q(x_j) with Q = e^x and x^{1/2},
    for which all clients send Q once, before the first round.
    Prediction: argmax_c m_cᵀh. Personal models: argmax_{c ∈ C_k} Φ_{k,c} m_cᵀh, the model after local training.
    The authors' code keeps missing classes in the softmax (`softmax_classes = "all"`) and divides by a `temperature`,
    which then replaces sqrt(E_W) by 1/temperature.
    Long class vectors give large gradients, so gradients are clipped at the norm `clip`, 20 as in the authors' code;
    a number in `optimizer.clip` has priority.
    The paper's layer to 512 features before the classifier is a setting of the model, `model.neck = 512` as in the
    presets. The wider layer with BatchNorm of the authors' code is `model.neck_hidden` and `model.neck_norm`.
    With `head = "projected"`, as in the code of FedDr+, ℓ = s·Vᵀu/‖u‖ replaces sqrt(E_W)·Mᵀh: u = A z without bias, V a
    fixed simplex ETF with as many dimensions as classes, s learnable from 1 on, and the softmax has all classes.
    `E_W`, `normalize`, `temperature` and `softmax_classes` then have no effect. That code does not clip:
    `clip = "none"`.
    """
    if head not in get_args(HeadKind):
        raise Misconfigured(f"unknown head {head!r}.{nearest(str(head), get_args(HeadKind))}")
    if head == "projected":
        return replace(adapted(EtfProjectorHead(bias=False), phi, "all", clip), gauges={"scale": scale_of})
    return adapted(etf_head(E_W, normalize, temperature), phi, softmax_classes, clip)
