"""Local-only training with dot regression."""

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.heads import EtfDirectHead
from fedblade.losses import DotRegression
from fedblade.methods.local_ce import alone


@methods.register(paper="arXiv:2406.02355", tune={"lr": (0.1, 0.35, 1.0, 5.0)})
def local_dr() -> Method:
    """Train every client alone, towards the vectors of a fixed simplex classifier.

    Objective: L_k = mean_i ½(cos(z_i, v_{y_i}) − 1)², V a fixed simplex ETF. Prediction: argmax_c cos(z, v_c).
    """
    return alone(EtfDirectHead(), DotRegression())
