"""Which replies of clients may touch the sums: everything else is refused, with a reason."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedblade.core.state import unflatten
from fedblade.core.sums import Sum
from fedblade.core.tree import Tree
from fedblade.engines._wire import KINDS, pack
from fedblade.engines.base import RoundOutcome
from fedblade.engines.nodes._in_short import SHOWN, in_short
from fedblade.engines.nodes._post import Reply

MISSING, REFUSED = "count_missing_clients", "count_refused_replies"
"""What the server counts itself."""
_SERVERS = frozenset({MISSING, REFUSED, "count_clients_without_test_samples"})
"""Counters in a round's record that no client may write."""
_LOGGED = re.compile(r"(loss|count)_\w{1,60}", re.ASCII)
_FACTS = frozenset({"client", "round", "kind", "is_first", "sent", "totals", "steps", "bytes_up", "seconds", "kept"})
_MOST_LOGGED = 1000
_LARGEST = 1e30
"""No honest loss, count or time comes near it, and sums of such numbers stay finite."""
_ROUNDING = 1e-9
_WEIGHT = "sums/weight"
"""What sums are divided by: with one below zero in it the total may vanish."""


@dataclass(frozen=True)
class Template:
    """What an honest reply looks like: names, shapes and types of its tensors, made by a client of the server's own.

    `bounds` are the largest values that entries may have, by the name of the sum. The `loss` of a model that is only
    `measured` may be NaN or infinite, as a diverged model's is.
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
        return (
            _wrong_facts(reply.facts, asked)
            or self._wrong_log(reply.facts)
            or self._wrong_names(reply.facts["sent"], bool(asked.get("is_first")))
            or self._wrong_tensors(reply)
            or self._wrong_values(reply)
        )

    def _wrong_log(self, facts: Mapping[str, Any]) -> str | None:
        """A log may have no other names than a round's losses and counters, which stand beside its other numbers."""
        totals, steps = facts["totals"], facts["steps"]
        if totals.keys() != steps.keys() or len(totals) > _MOST_LOGGED:
            return "its log has not one total and one number of steps for each of its names"
        for key, total in totals.items():
            if (key not in self.logged and not _LOGGED.fullmatch(key)) or key in _SERVERS:
                return f"its log has '{in_short(key)}', which is no loss or counter of a client"
            if not _is_number(total) or type(steps[key]) is not int or not 0 <= steps[key] <= _LARGEST:
                return f"its log has '{key}' {in_short(total)} in {in_short(steps[key])} steps, which cannot be"
            if key.startswith("count_") and total < 0:
                return f"its log has '{key}' {in_short(total)}, which is no count"
        return None

    def _wrong_names(self, sent: Mapping[str, Any], is_first: bool) -> str | None:
        for kind, names in sent.items():
            if not isinstance(names, list) or names not in ([], list(self.sent[kind])):
                return f"it sends {in_short(names)} as {kind}; expected {list(self.sent[kind])}"
        if sent["first"] and not is_first:
            return "it sends what only the first client of a cohort was asked for"
        return None

    def _wrong_tensors(self, reply: Reply) -> str | None:
        kinds = [kind for kind, names in reply.facts["sent"].items() if names]
        wanted = {key: leaf for key, leaf in self.tensors.items() if key.partition("/")[0] in kinds}
        if reply.tensors.keys() != wanted.keys():
            differing = sorted(reply.tensors.keys() ^ wanted.keys())
            return f"its tensors differ in {len(differing)} names, such as {[key[:SHOWN] for key in differing[:3]]}"
        for key, leaf in reply.tensors.items():
            if leaf.shape != wanted[key].shape or leaf.dtype != wanted[key].dtype:
                return (
                    f"'{key}' has shape {list(leaf.shape)[:8]} and type {leaf.dtype}; expected "
                    f"{list(wanted[key].shape)} and {wanted[key].dtype}"
                )
        return None

    def _wrong_values(self, reply: Reply) -> str | None:
        for name, tree in unflatten(reply.tensors).items():
            for leaf, tensor in tree.items():
                if self.measured and leaf == "loss":
                    continue
                if not bool(torch.isfinite(tensor).all()):
                    return f"'{name}/{leaf}' holds NaN or infinity"
                # A sum may round up to just above what it cannot pass.
                bound = self.bounds.get(name.partition("/")[2], math.inf) * (1 + _ROUNDING)
                if tensor.numel() and float(tensor.abs().max()) > bound:
                    return f"'{name}/{leaf}' reaches {float(tensor.abs().max()):.3g}; the largest allowed is {bound:g}"
                if name == _WEIGHT and bool((tensor < 0).any()):
                    return f"'{name}/{leaf}' is below zero, which no weight is"
        return None


def _wrong_facts(facts: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Whether a reply answers what was asked, with facts of the right types."""
    if not facts.keys() <= _FACTS:
        return f"it states {in_short(min(facts.keys() - _FACTS, key=str))}, which nobody asked for"
    for key, value in asked.items():
        if type(facts.get(key)) is not type(value) or facts[key] != value:
            return f"it answers {key} {in_short(facts.get(key))}; asked was {value!r}"
    if not isinstance(facts.get("totals"), dict) or not isinstance(facts.get("steps"), dict):
        return "it has no log of its losses"
    if not all(_is_number(facts.get(key)) and facts[key] >= 0 for key in ("seconds", "bytes_up")):
        return "its seconds or its bytes are no numbers"
    if not isinstance(facts.get("kept", False), bool):
        return "it does not say whether it has kept a state"
    sent = facts.get("sent")
    if not isinstance(sent, dict) or sent.keys() != set(KINDS):
        return "it does not say what it sends"
    return None


def _is_number(given: object) -> bool:
    """Whether something is a number of a size that can be; JSON knows NaN, infinity and integers of any length."""
    return type(given) in (int, float) and -_LARGEST <= given <= _LARGEST  # type: ignore[operator]
