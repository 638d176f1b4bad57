"""FedBN: normalisation layers stay on the client (Li et al., ICLR 2021)."""

from dataclasses import replace

from fedblade.core.method import Method
from fedblade.core.registry import methods
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:2102.07623")
def fedbn() -> Method:
    """Average all layers except the normalisation layers, which every client keeps.

    Objective: CE. Server: averaging of the other layers. A client keeps weights, biases and running statistics of its
    normalisation layers, at first the initial ones. Clients are measured with their personal models.
    """
    return replace(fedavg(), personal=("norm",), buffers="local", accuracy_of="personal")
