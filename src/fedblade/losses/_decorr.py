"""The configuration table `decorr`: which decorrelation term, and its knobs."""

from dataclasses import dataclass
from typing import Literal

from fedblade.core.errors import Misconfigured
from fedblade.core.terms import FeatureTerm
from fedblade.losses._checks import check_choice, check_ddof
from fedblade.losses._feddecorr import FedDecorr, Scale
from fedblade.losses._lddecorr import LDDecorr
from fedblade.losses._standardised import Form

KINDS = ("logdet", "feddecorr")


@dataclass(frozen=True)
class Decorr:
    """A decorrelation regulariser and how it is computed.

    "auto" follows the definition of the loss: `logdet` has the population deviation (`ddof` 0) in float64, `feddecorr`
    the sample deviation (1) in the dtype of the features. `eps` belongs to `logdet`, `scale` to `feddecorr`. A
    `balance` ρ sets the strength in each step to ρ times the gradient of the supervised loss. Over `warmup` rounds the
    weight, or the balance, grows linearly to its value.
    """

    kind: Literal["logdet", "feddecorr"] = "logdet"
    eps: float = 1e-4
    var_eps: float = 1e-8
    ddof: int | Literal["auto"] = "auto"
    form: Form = "auto"
    precision: Literal["auto", "f64", "f32"] = "auto"
    scale: Scale = "official"
    balance: float | Literal["none"] = "none"
    warmup: int = 0

    def __post_init__(self) -> None:
        check_choice("decorr.kind", self.kind, KINDS)
        check_choice("decorr.precision", self.precision, ("auto", "f64", "f32"))
        if self.balance != "none" and not (isinstance(self.balance, int | float) and self.balance >= 0):
            raise Misconfigured(
                f"decorr.balance={self.balance!r} must be 0 or more, e.g. 0.1, or 'none' for a fixed weight."
            )
        check_ddof(self.ddof, (0, 1, "auto"))
        for kind in (self._logdet, self._feddecorr):
            kind(0.0)

    def term(self, weight: float) -> FeatureTerm:
        """The loss term with this weight."""
        return self._logdet(weight) if self.kind == "logdet" else self._feddecorr(weight)

    def _logdet(self, weight: float) -> FeatureTerm:
        return LDDecorr(
            weight=weight,
            balance=self._balance,
            warmup=self.warmup,
            eps=self.eps,
            var_eps=self.var_eps,
            ddof=0 if self.ddof == "auto" else self.ddof,
            form=self.form,
            precision="f64" if self.precision == "auto" else self.precision,
        )

    def _feddecorr(self, weight: float) -> FeatureTerm:
        return FedDecorr(
            weight=weight,
            balance=self._balance,
            warmup=self.warmup,
            scale=self.scale,
            var_eps=self.var_eps,
            ddof=1 if self.ddof == "auto" else self.ddof,
            form=self.form,
            precision="own" if self.precision == "auto" else self.precision,
        )

    @property
    def _balance(self) -> float | None:
        return None if self.balance == "none" else self.balance
