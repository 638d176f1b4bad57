"""Anchor matching: a feature should point in the direction of the shared anchor of its class."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedblade.core.registry import losses
from fedblade.core.terms import Term, TermValue
from fedblade.core.views import StepView
from fedblade.heads import normalise
from fedblade.losses._checks import check_choice, check_positive
from fedblade.losses._cross_entropy import cross_entropy
from fedblade.losses._masking import mean_of_real, real_rows
from fedblade.losses._prototype_distance import guided_by

Match = Literal["contrast", "l2"]
MATCHES: tuple[Match, ...] = ("contrast", "l2")


def anchor_matching(
    features: Tensor,
    labels: Tensor,
    anchors: Tensor,
    has: Tensor,
    tau: float = 0.1,
    *,
    match: Match = "contrast",
    mask: Tensor | None = None,
) -> Tensor:
    """Match features with the anchors of their classes (FedFM, contrastive-guiding loss and its L2 variant).

    `contrast` is the mean cross-entropy of cos(z, a_c)/τ over the classes that have an anchor, `l2` the mean of
    ‖z/‖z‖ - a_y/‖a_y‖‖²/d. `features [batch, dim]` z, `anchors [classes, dim]` a, constants of the loss,
    `has [classes]` says which classes have an anchor. Samples whose class has no anchor are left out; an empty mean is
    0 with zero gradient. A zero vector has cosine 0 with every vector.

    Deviation: the paper does not say what happens while a class has no anchor.
    """
    check_choice("match", match, MATCHES)
    check_positive("tau", tau, 0.1)
    given = guided_by("anchors", anchors, has, features, labels, mask)
    directions, targets = normalise(given.features), normalise(given.points)
    if match == "l2":
        return mean_of_real((directions - targets[given.labels]).square().mean(1), given.used)
    logits = torch.where(has != 0, directions @ targets.mT / tau, -torch.inf)
    return cross_entropy(logits, given.labels, mask=given.used)


@losses.register("anchor_matching", paper="arXiv:2210.07615")
@dataclass(frozen=True, kw_only=True)
class AnchorMatching(Term):
    """Match the features with the shared anchors from round `t_start` on (the first round is 0); see `anchor_matching`.

    Reads the server state `prototypes`: `mean` [classes, dim] and `has` [classes].
    """

    name: ClassVar[str] = "fm"
    by_round: ClassVar[bool] = True
    tau: float = 0.1
    match: Match = "contrast"
    t_start: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("match", self.match, MATCHES)
        check_positive("tau", self.tau, 0.1)

    def __call__(self, view: StepView) -> TermValue:
        """Mean over the real samples of the batch whose class has an anchor."""
        if view.round < self.t_start:
            return TermValue((real_rows(view.features, view.mask) * 0).sum())
        anchors = view.server["prototypes"]
        value = anchor_matching(
            view.features, view.labels, anchors["mean"], anchors["has"], self.tau, match=self.match, mask=view.mask
        )
        return TermValue(value)
