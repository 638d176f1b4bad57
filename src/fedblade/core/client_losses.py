"""The loss of the current global model on a client's training samples: what a choice of clients may ask for.

It is collected like the sums of a method's exchange, so that every engine can give it.
"""

import torch
from torch.nn import functional

from fedblade.core.method import Method
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.core.views import EndView, StepView

_LARGEST = 1e9
"""The largest mean loss that is believed."""


def _batch_loss(view: StepView) -> Tree:
    """Cross-entropy of the logits, added up over the real samples of a batch, and their number."""
    real = torch.ones_like(view.labels, dtype=torch.bool) if view.mask is None else view.mask != 0
    labels = torch.where(real, view.labels, 0)
    losses = functional.cross_entropy(view.logits.detach().to(torch.float64), labels, reduction="none")
    return {"count": real.sum().to(torch.float64), "loss": torch.where(real, losses, 0.0).sum()}


_PASS = DataPass("client_loss", _batch_loss)


def _mean_loss(view: EndView) -> Tree:
    totals = view.passes[_PASS.name]
    return {"loss": totals["loss"] / totals["count"].clamp(min=1.0)}


CLIENT_LOSSES = (Sum("client_loss", _mean_loss, bound=_LARGEST, passes=(_PASS,), reduce="each"),)
"""Each client's mean loss, the clients in ascending id."""


def collectable_sums(method: Method) -> list[tuple[Sum, ...]]:
    """All that clients may be asked to collect without training: the sums of the method's exchanges, and their loss."""
    return [*(exchange.sums for exchange in method.exchanges), CLIENT_LOSSES]
