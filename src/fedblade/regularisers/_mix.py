"""Mixing: β·L_base + (1 − β)·L_reg, the synergy grid of FedDr+ (Table 2)."""

from collections.abc import Callable
from dataclasses import replace

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.phase import Phase
from fedblade.core.terms import AnyTerm

BETA = 0.9
"""Share of the base where nothing else is said."""


def mixed(beta: float, term: AnyTerm) -> Callable[[Method], Method]:
    """Give every term of a method the share `beta` and add `term` with the rest.

    With β = 1 the method is the base bit for bit.
    """
    if not 0 <= beta <= 1:
        raise Misconfigured(f"beta = {beta} is the share of the base's loss; expected a number from 0 to 1.")
    added = replace(term, weight=(1 - beta) * term.weight)

    def mix(method: Method) -> Method:
        phases = tuple(_with(phase, beta, added) for phase in method.phases)
        return replace(method, losses=(*_scaled(method.losses, beta), added), phases=phases)

    return mix


def _with(phase: Phase, beta: float, added: AnyTerm) -> Phase:
    """A phase of the received model with losses of its own is mixed as well."""
    if phase.losses is None or phase.track is not None:
        return phase
    return replace(phase, losses=(*_scaled(phase.losses, beta), added))


def _scaled(terms: tuple[AnyTerm, ...], beta: float) -> tuple[AnyTerm, ...]:
    return tuple(replace(term, weight=beta * term.weight) for term in terms)
