"""FedBlade: FedETF with log-determinant decorrelation and prototype-guided bilateral alignment (PBA)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.heads import Scale
from fedblade.losses import Decorr, FeatureAlignment, ProjectorAlignment
from fedblade.methods.fedetf import fedetf
from fedblade.server import average_with_prototypes, no_prototypes, num_prototypes


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
    """Prototypes: weight by samples or equal, plain or augmented inputs, and whether an absent class keeps its one.

    With a `momentum` of m a prototype becomes m times the former one plus 1 − m times the new mean of its class.
    """

    weight: Literal["count", "uniform"] = "count"
    transform: Literal["eval", "train"] = "eval"
    carry_over: bool = True
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise Misconfigured(f"proto.momentum is {self.momentum}; expected a number from 0 to below 1, such as 0.5.")


@methods.register(
    paper="FedBlade (Eq. 11-17)",
    tune={"gamma_pba": (0.1, 1.0, 5.0), "decorr.balance": ("none", 0.1), "proto.momentum": (0.0, 0.9)},
)
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
    Prototypes p̄_c are count-weighted means of z over the cohort; L_PA and L_FA are 0 until prototypes exist.
    Beyond the paper, and off unless asked for: with `decorr.warmup` W, round t (the first is 0) has λ, or the balance,
    times min(1, (t + 1)/(W + 1)); with `proto.momentum` m, p̄_c ← m·p̄_c + (1 − m)·(the new mean of class c).
    """
    base = fedetf(gamma_bal=gamma_bal, count_floor=count_floor, proj_dim=proj_dim, scale=scale)
    method = replace(base, losses=(*base.losses, decorr.term(lambda_decorr)))
    if gamma_pba == 0 or not (pba.use_pa or pba.use_fa):
        return method

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
        sums=(*method.sums, payloads.prototype_sum(proto.weight, proto.transform)),
        server=partial(average_with_prototypes, carry_over=proto.carry_over, momentum=proto.momentum),
        server_state={"prototypes": no_prototypes},
        gauges={**method.gauges, "num_prototypes": num_prototypes},
    )
