"""FedAvgM: momentum on the server (Hsu et al., 2019)."""

import math
from dataclasses import replace
from functools import partial
from typing import Literal

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import Method, zeros
from fedblade.core.registry import methods
from fedblade.methods.fedavg import fedavg
from fedblade.server import momentum

VARIANTS = ("heavy_ball", "ema")


@methods.register(paper="arXiv:1909.06335", tune={"rho": (0.1, 0.5, 0.9)})
def fedavgm(variant: Literal["heavy_ball", "ema"] = "heavy_ball", rho: float = 0.9, eta_s: float = 1.0) -> Method:
    """Average locally trained models with momentum on the server.

    Objective: that of FedAvg.
    Server, with Δ̄ the averaged update: `heavy_ball` M ← ρM + Δ̄, w ← w + η_s·M; `ema` M ← ρM + (1−ρ)Δ̄, w ← w + M.
    Statistics have no momentum.
    """
    if variant not in VARIANTS:
        raise Misconfigured(f"unknown variant {variant!r}.{nearest(str(variant), VARIANTS)}")
    if not 0 <= rho < 1:
        raise Misconfigured(f"rho={rho!r}: expected a number from 0 to below 1, such as 0.9.")
    if not 0 < eta_s < math.inf:
        raise Misconfigured(f"eta_s={eta_s!r}: expected a number above 0, such as 1.")
    if variant == "ema" and eta_s != 1:
        raise Misconfigured(f"eta_s={eta_s!r} given, but 'ema' has no server rate. Set eta_s=1 or take 'heavy_ball'.")
    gain = 1 - rho if variant == "ema" else 1.0
    return replace(
        fedavg(),
        server=partial(momentum, rho=rho, gain=gain, rate=eta_s),
        server_state={"momentum": zeros},
        broadcast=(),
    )
