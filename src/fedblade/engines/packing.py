"""Packs the outcome of a cohort into one flat tree and plain facts that travel between processes and machines."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedblade.core.client_diagnostics import DiagnosticRequest, DiagnosticSums
from fedblade.core.outcome import StepLog
from fedblade.core.state import flatten, unflatten
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import Tree
from fedblade.engines.base import RoundOutcome

KINDS = _SUMS, _EVERY, _FIRST = ("sums", "every", "first")
"""The kinds of sums: those of the method, and those that diagnostics ask of every client and of the first client."""


def pack(outcome: RoundOutcome) -> tuple[Tree, dict[str, Any]]:
    """The tensors of an outcome under `kind/name/leaf`, and everything else as plain values for JSON."""
    observed = outcome.observed
    kinds = {_SUMS: outcome.sums, _EVERY: observed.every, _FIRST: observed.first}
    named = {f"{kind}/{name}": tree for kind, sums in kinds.items() for name, tree in sums.trees.items()}
    facts = {
        # The names are listed because a sum without leaves leaves no trace in the tensors.
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
    """Inverse of `pack`. How a sum is reduced is taken from what the receiver declared and asked for."""
    trees = unflatten(tensors)

    def sums(kind: str, requested: Iterable[Sum]) -> Sums:
        received: dict[str, Tree] = {name: trees.get(f"{kind}/{name}", {}) for name in facts["sent"][kind]}
        return Sums(received, {sum_.name: sum_.reduce for sum_ in requested if sum_.name in received})

    every, first = ((), ()) if diagnostics is None else (diagnostics.every, diagnostics.first)
    observed = DiagnosticSums(sums(_EVERY, every), sums(_FIRST, first), facts["seconds"])
    log = StepLog(facts["totals"], facts["steps"])
    return RoundOutcome(sums(_SUMS, declared), log, facts["bytes_up"], observed)
