"""Feature distillation: stay near the features of the model received."""

from torch import Tensor

from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_mask, check_matrix, check_shape


def feature_distillation(features: Tensor, anchor_features: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over samples of ‖z - z_g‖²/d, z_g a constant (FedDr+, Sec. 3.2, L_FD).

    `features` and `anchor_features` are [batch, dim], neither normalised.
    """
    check_matrix("features", features)
    check_shape("anchor_features", anchor_features, tuple(features.shape), "Take both from the same batch and layer.")
    check_mask(mask, features)
    gap = real_rows(features, mask) - real_rows(anchor_features.detach(), mask)
    return mean_of_real(gap.square().mean(-1), mask)
