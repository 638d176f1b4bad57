"""FedBABU: train the body under a head that keeps its initial weights (Oh et al., ICLR 2022)."""

from dataclasses import replace

from fedblade.core.method import Method, Own
from fedblade.core.phase import Phase
from fedblade.core.registry import methods
from fedblade.heads import FrozenLinearHead
from fedblade.methods.fedavg import fedavg


@methods.register(paper="arXiv:2106.06042")
def fedbabu() -> Method:
    """Train only the body; all clients share the head's initial weights.

    Objective: L_k = mean_i CE(W z_i + b, y_i) over the body, W and b fixed.
    Fine-tuning trains the head as well.
    """
    tuning = Phase(frees=("head.weight", "head.bias"))
    return replace(fedavg(), head=FrozenLinearHead(), own=Own(finetune=(tuning,)))
