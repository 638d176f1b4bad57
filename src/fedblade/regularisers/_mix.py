"""Adding a regulariser to a method: to every loss that the received model is trained on, as a sum or as a mixture.

A mixture is β·L_base + (1 − β)·L_reg (FedDr+, Table 2).
"""

from collections.abc import Callable
from dataclasses import replace

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.phase import Phase
from fedblade.core.terms import AnyTerm

BETA = 0.9
"""Default share of the base."""
BETAS = (0.5, 0.9, 0.99)
"""What tuning tries."""

Terms = tuple[AnyTerm, ...]


def with_terms(method: Method, change: Callable[[Terms], Terms]) -> Method:
    """The method with `change` applied to its loss, in training and in fine-tuning.

    Phases that have another loss, also those of fine-tuning, are changed too. A `track` keeps its loss, because it does
    not train the received model. The stages of the protocol `pers_etf` keep theirs, because FedETF defines them with
    plain cross-entropy.
    """

    def changed(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        return tuple(
            phase if phase.losses is None or phase.track is not None else replace(phase, losses=change(phase.losses))
            for phase in phases
        )

    own = method.own
    tuning = {
        protocol: stages if protocol == "pers_etf" else tuple(changed(phases) for phases in stages)
        for protocol, stages in own.tuning.items()
    }
    finetune = None if own.finetune is None else changed(own.finetune)
    return replace(
        method,
        losses=change(method.losses),
        phases=changed(method.phases),
        own=replace(own, finetune=finetune, tuning=tuning),
    )


def added(term: AnyTerm) -> Callable[[Method], Method]:
    """Add `term`, with its weight, to the loss of a method."""
    return lambda method: with_terms(method, lambda terms: (*terms, term))


def mixed(beta: float, term: AnyTerm) -> Callable[[Method], Method]:
    """Multiply the weights of a method's terms by `beta`, and add `term` with its weight times 1 − `beta`.

    With β = 1 the method is the base bit for bit.
    """
    if not 0 <= beta <= 1:
        raise Misconfigured(f"beta = {beta} is the share of the base's loss; expected a number from 0 to 1.")
    rest = replace(term, weight=(1 - beta) * term.weight)

    def mix(terms: Terms) -> Terms:
        return (*(replace(base, weight=beta * base.weight) for base in terms), rest)

    return lambda method: with_terms(method, mix)
