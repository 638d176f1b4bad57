"""FedProto: pull features to global class prototypes (Tan et al., AAAI 2022)."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fedblade import payloads
from fedblade.core.method import Method, Own
from fedblade.core.phase import ALL_GROUPS
from fedblade.core.registry import methods
from fedblade.core.terms import check_weight
from fedblade.core.views import StepView
from fedblade.losses import PrototypeDistance
from fedblade.methods.fedavg import fedavg
from fedblade.server import average_with_prototypes, no_prototypes, num_prototypes, update_prototypes


def _nearest_prototype(view: StepView) -> Tensor:
    """Logits −‖z − p̄_c‖², −∞ for classes without a prototype; the head's logits while there are no prototypes."""
    mean, has = (view.server["prototypes"][part] for part in ("mean", "has"))
    distances = (view.features[:, None, :] - mean).square().sum(-1)
    return torch.where(has.any(), torch.where(has, -distances, -torch.inf), view.logits)


@methods.register(paper="arXiv:2105.00243", tune={"lambda_proto": (0.1, 1.0, 10.0)})
def fedproto(
    lambda_proto: float = 1.0,
    share_weights: bool = True,
    inference: Literal["head", "proto"] = "head",
    proto_weight: Literal["count", "uniform"] = "count",
) -> Method:
    """Pull features to the global prototypes of their classes.

    Objective: L_k = mean_i CE(W z_i + b, y_i) + λ·mean_i ‖z_i − p̄_{y_i}‖²/d, the latter over samples whose class has a
    prototype. Server: p̄_c = Σ_k n_{k,c} p̂_{k,c} / Σ_k n_{k,c} over the cohort (`uniform`: the mean over the clients
    that hold the class). A class that no client of the cohort holds keeps its prototype. With `share_weights` models
    are averaged too. Without it, as in the paper, only prototypes travel and each client keeps its personal model. With
    `inference` "proto" a personal model predicts the class of the nearest prototype.
    """
    check_weight("lambda_proto", lambda_proto)
    base = fedavg()
    if not share_weights:
        base = replace(base, sums=(), personal=ALL_GROUPS, buffers="local", accuracy_of="personal")
    if lambda_proto == 0 and inference == "head":
        return base
    return replace(
        base,
        losses=(*base.losses, PrototypeDistance(weight=lambda_proto)),
        sums=(*base.sums, payloads.prototype_sum(proto_weight)),
        server=average_with_prototypes if share_weights else update_prototypes,
        server_state={"prototypes": no_prototypes},
        own=Own(logits=_nearest_prototype) if inference == "proto" else base.own,
        gauges={"num_prototypes": num_prototypes},
    )
