"""Calibration of a fixed classifier on unit features, in closed form."""

import torch

from fedblade.core.state import ServerState
from fedblade.core.sums import Sums


def calibrate_sphere(state: ServerState, sums: Sums, *, ridge: float) -> ServerState:
    """Ridge solution W* = (Σ e_y uᵀ)(Σ u uᵀ + ridge·I)⁻¹ in float64, as the fixed `head.weight` [classes, dim].

    Reads the sums `unit_gram` (Σ u uᵀ) and `unit_class_sums` (Σ e_y uᵀ).
    """
    gram, cross, old = sums["unit_gram"]["gram"], sums["unit_class_sums"]["sum"], state.fixed["head.weight"]
    regularised = gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    weight = torch.linalg.solve(regularised, cross.T).T.contiguous()
    return state.replace(fixed={**state.fixed, "head.weight": weight.to(old.dtype)})
