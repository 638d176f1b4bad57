"""FedBlade: FedETF with log-determinant decorrelation and prototype-guided bilateral alignment (PBA)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.core.state import ServerState
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree
from fedblade.core.views import EndView
from fedblade.heads import Scale
from fedblade.losses import Decorr, FeatureAlignment, ProjectorAlignment
from fedblade.methods.fedetf import fedetf
from fedblade.server import average, no_prototypes, update_prototypes


@dataclass(frozen=True)
class Pba:
    """Bilateral alignment: temperature, which half is on, class counts in L_FA, sum or mean over classes in L_PA."""

    tau: float = 0.1
    use_pa: bool = True
    use_fa: bool = True
    distribution_factor: bool = True
    pa_reduction: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise Misconfigured(f"pba.tau is {self.tau}; expected a number above 0, such as 0.1.")


@dataclass(frozen=True)
class Proto:
    """Prototypes: weighted by samples or equally, over plain or augmented inputs, kept when a class is absent."""

    weight: Literal["count", "uniform"] = "count"
    transform: Literal["eval", "train"] = "eval"
    carry_over: bool = True


def _prototype_sum(proto: Proto) -> Sum:
    """Class sums and counts (Eq. 14); with `uniform` every holder counts once."""
    source = payloads.AUGMENTED_CLASS_FEATURES if proto.transform == "train" else payloads.CLASS_FEATURES

    def of(view: EndView) -> Tree:
        total = view.passes[source.name]
        if proto.weight == "count":
            return total
        holds = total["count"].clamp(max=1.0)
        return {"sum": total["sum"] / total["count"].clamp(min=1.0)[:, None], "count": holds}

    return Sum("prototypes", of, bound=1e9, passes=(source,), by_class=True)


def _num_prototypes(state: ServerState) -> float:
    return float(torch.count_nonzero(state.extra["prototypes"]["has"]))


@methods.register(paper="FedBlade (Eq. 11-17)")
def fedblade(
    lambda_decorr: float = 0.005,
    gamma_pba: float = 1.0,
    gamma_bal: float = 1.0,
    count_floor: int = 1,
    proj_dim: int | Literal["auto"] = "auto",
    decorr: Decorr = Decorr(kind="logdet"),
    pba: Pba = Pba(),
    scale: Scale = Scale(),
    proto: Proto = Proto(),
) -> Method:
    """Open the feature spectrum and align projector and extractor through global prototypes.

    Objective (Eq. 17): L_k = L_sup + λ·L_LD + γ·(L_PA + L_FA) with
    L_sup FedETF's balanced cross-entropy, L_LD = −log det(K̂ + εI) on the features z,
    L_PA = Σ_c ½(1 − cos(g_ψ(p̄_c), v_c))², L_FA = mean_i CE(cos(z_i, p̄)/τ + log n_k, y_i).
    Prototypes p̄_c are count-weighted means of z over the cohort; L_PA and L_FA are silent until they exist.
    """
    base = fedetf(gamma_bal=gamma_bal, count_floor=count_floor, proj_dim=proj_dim, scale=scale)
    method = replace(base, losses=(*base.losses, decorr.term(lambda_decorr)))
    if gamma_pba == 0 or not (pba.use_pa or pba.use_fa):
        return method

    def server(state: ServerState, sums: Sums) -> ServerState:
        return update_prototypes(average(state, sums), sums, carry_over=proto.carry_over)

    alignment = (
        ProjectorAlignment(weight=gamma_pba * pba.use_pa, reduction=pba.pa_reduction),
        FeatureAlignment(
            weight=gamma_pba * pba.use_fa,
            tau=pba.tau,
            floor=count_floor,
            distribution_factor=pba.distribution_factor,
        ),
    )
    return replace(
        method,
        losses=(*method.losses, *alignment),
        sums=(*method.sums, _prototype_sum(proto)),
        server=server,
        server_state={"prototypes": no_prototypes},
        gauges={**method.gauges, "num_prototypes": _num_prototypes},
    )
