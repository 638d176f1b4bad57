"""The work of a phase: its terms, which parameters train, and with which settings of the optimiser."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedblade.core.phase import Phase
from fedblade.core.problem import LocalSettings, Problem
from fedblade.core.terms import AnyTerm, active
from fedblade.core.tree import Tree


@dataclass(frozen=True)
class Rate:
    """Settings of SGD for some parameters; `lr` None means the round's learning rate."""

    lr: float | None
    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class Work:
    """A phase made ready: its terms, the names of trained parameters, and their optimiser settings.

    `first` are the terms of a look-ahead's first gradient.
    """

    phase: Phase
    terms: tuple[AnyTerm, ...]
    first: tuple[AnyTerm, ...]
    trained: frozenset[str]
    rates: tuple[tuple[tuple[str, ...], Rate], ...]


def prepare_phase(problem: Problem, phase: Phase, params: Tree) -> Work:
    """The work of a phase on a model with these parameters."""
    terms = active(problem.method.losses if phase.losses is None else phase.losses)
    look = phase.lookahead
    trained = problem.network.names_in(phase.trains, params) | frozenset(phase.frees)
    return Work(
        phase=phase,
        terms=terms,
        first=terms if look is None or look.losses is None else active(look.losses),
        trained=trained,
        rates=_rates(problem, phase, [name for name in params if name in trained]),
    )


def _rates(problem: Problem, phase: Phase, names: Sequence[str]) -> tuple[tuple[tuple[str, ...], Rate], ...]:
    """Parameter names grouped by their optimiser settings, in the order of the parameters."""
    chosen: dict[Rate, list[str]] = {}
    special = {
        name: sgd for group, sgd in phase.group_sgd.items() for name in problem.network.names_in((group,), names)
    }
    for name in names:
        sgd = special.get(name, phase.sgd)
        rate = _resolve(problem.settings, sgd.lr, sgd.momentum, sgd.weight_decay)
        chosen.setdefault(rate, []).append(name)
    return tuple((tuple(group), rate) for rate, group in chosen.items())


def _resolve(settings: LocalSettings, lr: float | None, momentum: float | None, weight_decay: float | None) -> Rate:
    return Rate(
        lr,
        settings.momentum if momentum is None else momentum,
        settings.weight_decay if weight_decay is None else weight_decay,
    )
