"""Which replies of clients may touch the sums: everything else is refused, with a reason."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedblade.core.state import unflatten
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.engines._post import Reply
from fedblade.engines._wire import pack
from fedblade.engines.base import RoundOutcome

_ROUNDING = 1e-9
_MOST_FACTS = 100_000
"""Bytes of plain facts that a reply may have; an honest one has a few hundred."""


@dataclass(frozen=True)
class Template:
    """What an honest reply looks like: names, shapes and types of its tensors, made by a client of the server's own.

    `bounds` are the largest values that entries may have, by the name of the sum. What is only `measured` and moves no
    model may be NaN or infinite, as a diverged model's loss is.
    """

    tensors: Tree
    sent: Mapping[str, tuple[str, ...]]
    logged: frozenset[str]
    bounds: Mapping[str, float]
    measured: bool = False

    @staticmethod
    def of(outcome: RoundOutcome, declared: Iterable[Sum], *, measured: bool = False) -> "Template":
        """The template that an outcome of one client is."""
        tensors, facts = pack(outcome)
        sent = {kind: tuple(names) for kind, names in facts["sent"].items()}
        bounds = {each.name: each.bound for each in declared}
        return Template(tensors, sent, frozenset(facts["totals"]), bounds, measured)

    def refusal(self, reply: Reply, asked: Mapping[str, Any]) -> str | None:
        """Why a reply must not be used, or None; `asked` are the facts that it has to repeat."""
        if reply.error is not None:
            return reply.error
        for check in (self._wrong_facts, self._wrong_tensors, self._wrong_values):
            reason = check(reply, asked)
            if reason is not None:
                return reason
        return None

    def _wrong_facts(self, reply: Reply, asked: Mapping[str, Any]) -> str | None:
        facts = reply.facts
        if len(repr(facts)) > _MOST_FACTS:
            return f"its facts are longer than {_MOST_FACTS:,} characters"
        for key, value in asked.items():
            if facts.get(key) != value:
                return f"it answers {key} {facts.get(key)!r}; asked was {value!r}"
        if not self._is_log(facts.get("totals")) or not self._is_log(facts.get("steps")):
            return "its log is not made of losses and counts that are finite"
        if not isinstance(facts.get("seconds"), float) or not isinstance(facts.get("bytes_up"), int):
            return "its seconds or its bytes are no numbers"
        sent = facts.get("sent")
        if not isinstance(sent, Mapping) or sent.keys() != self.sent.keys():
            return "it does not say what it sends"
        for kind, names in sent.items():
            if list(names) not in ([], list(self.sent[kind])):
                return f"it sends {str(names)[:120]} as {kind}; expected {list(self.sent[kind])}"
        if sent["first"] and not asked.get("is_first"):
            return "it sends what only the first client of a cohort was asked for"
        return None

    def _wrong_tensors(self, reply: Reply, _: Mapping[str, Any]) -> str | None:
        kinds = [kind for kind, names in reply.facts["sent"].items() if names]
        wanted = {key: leaf for key, leaf in self.tensors.items() if key.partition("/")[0] in kinds}
        if reply.tensors.keys() != wanted.keys():
            return f"its tensors differ in {[key[:80] for key in sorted(reply.tensors.keys() ^ wanted.keys())][:3]}"
        for key, leaf in reply.tensors.items():
            if leaf.shape != wanted[key].shape or leaf.dtype != wanted[key].dtype:
                return (
                    f"'{key}' has shape {list(leaf.shape)} and type {leaf.dtype}; expected "
                    f"{list(wanted[key].shape)} and {wanted[key].dtype}"
                )
        return None

    def _wrong_values(self, reply: Reply, _: Mapping[str, Any]) -> str | None:
        for name, tree in () if self.measured else unflatten(reply.tensors).items():
            for leaf, tensor in tree.items():
                if not bool(torch.isfinite(tensor).all()):
                    return f"'{name}/{leaf}' holds NaN or infinity"
                # A sum may round up to just above what it cannot pass.
                bound = self.bounds.get(name.partition("/")[2], math.inf) * (1 + _ROUNDING)
                if tensor.numel() and float(tensor.abs().max()) > bound:
                    return f"'{name}/{leaf}' reaches {float(tensor.abs().max()):.3g}; the largest allowed is {bound:g}"
        return None

    def _is_log(self, given: object) -> bool:
        """Whether a log has no other names than a round's losses and counters, which stand beside its other numbers."""
        return isinstance(given, Mapping) and all(
            isinstance(key, str)
            and (key in self.logged or key.startswith(("loss_", "count_")))
            and isinstance(value, int | float)
            and math.isfinite(value)
            for key, value in given.items()
        )
