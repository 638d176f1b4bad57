"""Cross-entropy: the supervised loss of most methods."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._shapes import check_labels, check_mask, check_matrix


def cross_entropy(logits: Tensor, labels: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Mean over real samples of -log softmax(logits)[label], for `logits [batch, classes]`."""
    check_matrix("logits", logits, "[batch, classes]")
    check_labels(labels, logits)
    check_mask(mask, logits)
    # Not torch's function, because that loads a symbolic library when it is first called under vmap.
    likelihood = real_rows(logits, mask).log_softmax(1).gather(1, real_rows(labels, mask)[:, None])[:, 0]
    return mean_of_real(-likelihood, mask)


@losses.register("cross_entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Term):
    """Cross-entropy of the head's logits."""

    name: ClassVar[str] = "supervised"
    supervised: ClassVar[bool] = True

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch."""
        return TermValue(cross_entropy(view.logits, view.labels, mask=view.mask))
