"""Local-only training with cross-entropy from a simplex classifier."""

from fedblade.core.method import Method
from fedblade.core.phase import ALL_GROUPS
from fedblade.core.registry import methods
from fedblade.heads import LinearHead
from fedblade.losses import CrossEntropy
from fedblade.methods.local_ce import alone


@methods.register(paper="arXiv:2406.02355")
def local_ce_etf(freeze: bool = False) -> Method:
    """Train every client alone, with a linear head that starts as a simplex ETF.

    Objective: L_k = mean_i CE(W z_i + b, y_i). W starts as a simplex ETF and b as 0; with `freeze` both are fixed.
    """
    trains = tuple(group for group in ALL_GROUPS if group != "head") if freeze else ALL_GROUPS
    return alone(LinearHead(start="etf"), CrossEntropy(), trains)
