"""What a part of a cohort sent as one flat tree and a few plain facts, to travel between processes and machines."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.outcome import StepLog
from fedblade.core.state import flatten, unflatten
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree
from fedblade.engines.base import RoundOutcome

KINDS = _SUMS, _EVERY, _FIRST = ("sums", "every", "first")
"""What an outcome has sums of: what the method sends, and what diagnostics ask of every and of the first client."""


def pack(outcome: RoundOutcome) -> tuple[Tree, dict[str, Any]]:
    """The tensors of an outcome under `kind/name/leaf`, and the rest of it as JSON can hold it."""
    observed = outcome.observed
    kinds = {_SUMS: outcome.sums, _EVERY: observed.every, _FIRST: observed.first}
    named = {f"{kind}/{name}": tree for kind, sums in kinds.items() for name, tree in sums.trees.items()}
    facts = {
        # By name, because a sum may have no leaf.
        "sent": {kind: list(sums.trees) for kind, sums in kinds.items()},
        "totals": dict(outcome.log.totals),
        "steps": dict(outcome.log.steps),
        "bytes_up": outcome.bytes_up,
        "seconds": observed.seconds,
    }
    return flatten(named), facts


def unpack(
    tensors: Mapping[str, Any], facts: Mapping[str, Any], declared: Iterable[Sum], diagnostics: DiagnosticRequest | None
) -> RoundOutcome:
    """Inverse of `pack`; how the sums add up is for the receiver to say, by what it has asked for."""
    trees = unflatten(tensors)

    def sums(kind: str, asked: Iterable[Sum]) -> Sums:
        found: dict[str, Tree] = {name: trees.get(f"{kind}/{name}", {}) for name in facts["sent"][kind]}
        return Sums(found, {each.name: each.reduce for each in asked if each.name in found})

    every, first = ((), ()) if diagnostics is None else (diagnostics.every, diagnostics.first)
    observed = DiagnosticSums(sums(_EVERY, every), sums(_FIRST, first), facts["seconds"])
    log = StepLog(facts["totals"], facts["steps"])
    return RoundOutcome(sums(_SUMS, declared), log, facts["bytes_up"], observed)
