"""FedPer: a shared body under personal heads (Arivazhagan et al., 2019)."""

from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:1912.00818")
def fedper() -> Method:
    """Average the body; every client keeps a personal head.

    Objective: L_k = mean_i CE(W_k z_i + b_k, y_i) over body and head together. Server: averaging of the body.
    All heads start equal. Clients are measured with the newest body and their personal head.
    """
    return replace(fedavg(), personal=("head",), accuracy_of="personal")
