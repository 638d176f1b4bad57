"""How a regulariser reaches a method: into every loss the received model is trained on, added or mixed.

Mixing is β·L_base + (1 − β)·L_reg, the synergy grid of FedDr+ (Table 2).
"""

from collections.abc import Callable
from dataclasses import replace

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.phase import Phase
from fedblade.core.terms import AnyTerm

BETA = 0.9
"""Share of the base where nothing else is said."""

Terms = tuple[AnyTerm, ...]


def with_terms(method: Method, change: Callable[[Terms], Terms]) -> Method:
    """The method with `change` applied to its loss, in training and in fine-tuning.

    Phases with losses of their own are changed too, those of fine-tuning included: whatever a client is tuned on, the
    regulariser belongs to it. A `track` trains another model than the one received and keeps its loss, and so do the
    stages of the protocol `pers_etf`, which FedETF defines with plain cross-entropy.
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
    """Add `term`, with the weight it has, to the loss of a method."""
    return lambda method: with_terms(method, lambda terms: (*terms, term))


def mixed(beta: float, term: AnyTerm) -> Callable[[Method], Method]:
    """Give every term of a method the share `beta` and add `term` with the rest.

    With β = 1 the method is the base bit for bit.
    """
    if not 0 <= beta <= 1:
        raise Misconfigured(f"beta = {beta} is the share of the base's loss; expected a number from 0 to 1.")
    rest = replace(term, weight=(1 - beta) * term.weight)

    def mix(terms: Terms) -> Terms:
        return (*(replace(each, weight=beta * each.weight) for each in terms), rest)

    return lambda method: with_terms(method, mix)
