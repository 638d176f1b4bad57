"""SphereFed: unit features and a fixed orthonormal classifier (Dong et al., ECCV 2022)."""

import math
from dataclasses import replace
from functools import partial

import torch

from fedblade import payloads
from fedblade.core.errors import Misconfigured
from fedblade.core.method import Exchange, Method
from fedblade.core.registry import methods
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import StepView
from fedblade.heads import OrthonormalHead, normalise
from fedblade.losses import SphereRegression
from fedblade.server import average, calibrate_sphere


def _unit_moments(view: StepView) -> Tree:
    """Σ u uᵀ [dim, dim] and Σ e_y uᵀ [classes, dim] over one batch, u = z/‖z‖."""
    units = normalise(view.features).double()
    if view.mask is not None:
        units = torch.where((view.mask != 0)[:, None], units, 0.0)
    return {"gram": units.T @ units, "sum": payloads.class_features(replace(view, features=units))["sum"]}


_MOMENTS = DataPass("unit_moments", _unit_moments)
_SUMS = (
    Sum("unit_gram", lambda view: {"gram": view.passes["unit_moments"]["gram"]}, bound=1e6, passes=(_MOMENTS,)),
    Sum(
        "unit_class_sums",
        lambda view: {"sum": view.passes["unit_moments"]["sum"]},
        bound=1e6,
        passes=(_MOMENTS,),
        by_class=True,
    ),
)


@methods.register(paper="arXiv:2207.09413", tune={"lr": (0.1, 0.55, 1.0, 6.5)})
def spherefed(calibrate: bool = False, ridge: float = 1e-4) -> Method:
    """Pull unit features to fixed class vectors that are orthogonal to each other.

    Objective: L_k = mean_i (1/C)Σ_c (w_cᵀz_i/‖z_i‖ − 1{c = y_i})², W Wᵀ = I fixed. Prediction: argmax_c w_cᵀz.
    With `calibrate` all clients send Σ u uᵀ and Σ e_y uᵀ (u = z/‖z‖) after the last round, and the server takes
    W* = argmin Σ‖W u − e_y‖² + ridge·‖W‖² as the classifier.
    """
    if not 0 < ridge < math.inf:
        raise Misconfigured(f"ridge={ridge!r}: expected a number above 0, such as 1e-4; with 0 W* may not exist.")
    calibration = Exchange("after_run", _SUMS, partial(calibrate_sphere, ridge=ridge))
    return Method(
        head=OrthonormalHead(),
        losses=(SphereRegression(),),
        sums=payloads.MODEL,
        server=average,
        exchanges=(calibration,) if calibrate else (),
    )
