"""FedETF's fine-tuning on every client: the features first, then class vectors and projector in turns."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from fedblade.core.errors import Misconfigured, nearest
from fedblade.core.method import Stages
from fedblade.core.phase import ALL_GROUPS, Phase, Sgd
from fedblade.core.terms import AnyTerm

Variant = Literal["paper", "release"]


@dataclass(frozen=True)
class EtfFineTuning:
    """Epochs of each stage (E_p), number of turns (T_p), the optimisers of the turns, and the variant.

    The class vectors V train at `lr_classifier` without momentum and decay, the projector as its fields say, the body
    as in the run, at the run's last rate. With `release`, as in the authors' code, the first stage trains the whole
    model on the balanced loss, and the turns do not train the scale s. The model is then in training mode during the
    turns: BatchNorm normalises with the batch and updates its running statistics although the body is not trained.
    With `paper` the statistics do not change in the turns.
    """

    stage_epochs: int = 3
    iterations: int = 20
    lr_classifier: float = 0.1
    lr_projector: float = 0.05
    projector_momentum: float = 0.9
    projector_weight_decay: float = 5e-4
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        for name in ("stage_epochs", "iterations", "lr_classifier", "lr_projector", "projector_weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise Misconfigured(f"ft.{name}={getattr(self, name)!r}: expected a number from 0 on.")
        if not 0 <= self.projector_momentum < 1:
            raise Misconfigured(
                f"ft.projector_momentum={self.projector_momentum!r}: expected a number from 0 to below 1, such as 0.9."
            )
        if self.variant not in get_args(Variant):
            raise Misconfigured(f"unknown ft.variant {self.variant!r}.{nearest(self.variant, get_args(Variant))}")

    def stages(self, plain: AnyTerm, balanced: AnyTerm, *, projector: bool) -> Stages:
        """Train {θ, s}, then T_p times {V, s} and, if there is a projector, {ψ, s}.

        V becomes a trained matrix of the client. The loss is `plain`; in the first stage of `release` it is `balanced`.
        """
        release = self.variant == "release"
        features = Phase(
            trains=ALL_GROUPS if release else ("body", "scale"),
            epochs=self.stage_epochs,
            losses=(balanced if release else plain,),
        )
        turn = (self._classifier(plain), self._projector(plain)) if projector else (self._classifier(plain),)
        return ((features,), *(turn for _ in range(self.iterations)))

    def _classifier(self, loss: AnyTerm) -> Phase:
        return Phase(
            trains=self._scale(),
            frees=("etf",),
            epochs=self.stage_epochs,
            losses=(loss,),
            sgd=Sgd(lr=self.lr_classifier, momentum=0.0, weight_decay=0.0),
            statistics="update" if self.variant == "release" else "keep",
        )

    def _projector(self, loss: AnyTerm) -> Phase:
        return Phase(
            trains=("projector", *self._scale()),
            epochs=self.stage_epochs,
            losses=(loss,),
            sgd=Sgd(self.lr_projector, self.projector_momentum, self.projector_weight_decay),
            statistics="update" if self.variant == "release" else "keep",
        )

    def _scale(self) -> tuple[str, ...]:
        return () if self.variant == "release" else ("scale",)
