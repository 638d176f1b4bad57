"""FedFM: match features with shared anchors (Ye et al., IEEE Transactions on Signal Processing, 2023)."""

from dataclasses import replace
from typing import Literal

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Exchange, Method
from fedblade.core.registry import methods
from fedblade.core.terms import check_weight
from fedblade.losses import AnchorMatching
from fedblade.methods.fedavg import fedavg
from fedblade.server import average_with_prototypes, no_prototypes, num_prototypes, update_prototypes


@methods.register(paper="arXiv:2210.07615", tune={"lambda_fm": (1.0, 10.0, 50.0)})
def fedfm(
    lambda_fm: float = 1.0,
    tau: float = 0.1,
    t_start: int = 1,
    anchor_model: Literal["global", "local"] = "global",
    match: Literal["contrast", "l2"] = "contrast",
) -> Method:
    """Contrast features with one shared anchor per class.

    Objective: L_k = mean_i CE(W z_i + b, y_i) + λ·mean_i CE(cos(z_i, a)/τ, y_i) over the classes with an anchor, from
    round `t_start` on (the first is 0); `match` "l2" has ‖z/‖z‖ − a_y/‖a_y‖‖²/d instead. Anchors a_c are count-weighted
    class means of z over the cohort. They are computed with the new global model in an exchange after each round, or
    with `anchor_model` "local" by each client with its trained model and sent along with it. A class that no client of
    the cohort holds keeps its anchor.
    Deviation: the authors start in round 20 with λ = 50.
    """
    check_weight("lambda_fm", lambda_fm)
    if t_start < 0:
        raise Misconfigured(f"t_start={t_start}: expected a round number from 0 on; anchors exist from round 1.")
    base = fedavg()
    if lambda_fm == 0:
        return base
    anchors = payloads.prototype_sum()
    method = replace(
        base,
        losses=(*base.losses, AnchorMatching(weight=lambda_fm, tau=tau, match=match, t_start=t_start)),
        server_state={"prototypes": no_prototypes},
        gauges={"num_prototypes": num_prototypes},
    )
    if anchor_model == "local":
        return replace(method, sums=(*base.sums, anchors), server=average_with_prototypes)
    return replace(method, exchanges=(Exchange("after_round", (anchors,), update_prototypes, clients="cohort"),))
