"""Which replies of clients may touch the sums: everything else is refused, with a reason."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedblade.core.state import unflatten
from fedblade.core.sums import DataPass, Sum, own_weight
from fedblade.core.tree import Tree, tree_norm
from fedblade.engines.base import RoundOutcome
from fedblade.engines.nodes._bounds import Due, beyond, wrong_classes, wrong_measure, wrong_weight
from fedblade.engines.nodes._in_short import SHOWN, in_short
from fedblade.engines.nodes._post import Reply
from fedblade.engines.packing import KINDS, pack

MISSING, REFUSED = "count_missing_clients", "count_refused_replies"
"""What the server counts itself."""
_LOST = "count_lost_states"
"""What a node adds to the log of its client itself."""
_LARGEST = 1e30
"""No honest loss comes near it, and sums of such numbers stay finite."""
_MOST_SECONDS = 1e6
"""Of diagnostics."""
_WEIGHT = "sums/weight"
_FACTS = frozenset({"client", "round", "kind", "is_first", "sent", "totals", "steps", "bytes_up", "seconds", "kept"})
_TOLD = {"seconds": _MOST_SECONDS, "bytes_up": _LARGEST}


@dataclass(frozen=True)
class Template:
    """What an honest reply looks like: names, shapes and types of its tensors, made by a client of the server's own.

    `declared` are its sums by name, or `passes` where a model is only measured; `due` says what a client was asked for.
    `longest` is how long sums may be, by `kind/name`, for weights up to 1.
    """

    tensors: Tree
    sent: Mapping[str, tuple[str, ...]]
    logged: frozenset[str]
    declared: Mapping[str, Sum]
    passes: Mapping[str, DataPass] = field(default_factory=dict)
    due: Callable[[int], Due] | None = None
    longest: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(outcome: RoundOutcome, declared: Iterable[Sum], passes: Iterable[DataPass] = ()) -> "Template":
        """The template that an outcome of one client is."""
        tensors, facts = pack(outcome)
        sent = {kind: tuple(names) for kind, names in facts["sent"].items()}
        sums = {each.name: each for each in declared}
        return Template(tensors, sent, frozenset(facts["totals"]), sums, {each.name: each for each in passes})

    def refusal(self, reply: Reply, asked: Mapping[str, Any]) -> str | None:
        """Why a reply must not be used, or None; `asked` are the facts that it has to repeat."""
        if reply.error is not None:
            return reply.error
        due = None if self.due is None else self.due(int(asked["client"]))
        return (
            _wrong_facts(reply.facts, asked)
            or self._wrong_log(reply.facts, due)
            or self._wrong_names(reply.facts["sent"], asked, due)
            or self._wrong_tensors(reply)
            or self._wrong_values(reply, due)
        )

    def _wrong_log(self, facts: Mapping[str, Any], due: Due | None) -> str | None:
        """A log has no other names than the server's own client would have, and what that client's plan allows."""
        totals, steps = facts["totals"], facts["steps"]
        if totals.keys() != steps.keys():
            return "its log has not one total and one number of steps for each of its names"
        for key, total in totals.items():
            if key not in self.logged and key != _LOST:
                return f"its log has {in_short(key)}, which is no loss or counter of a client"
            most = 1 if key == _LOST or due is None else due.steps
            if not _is_number(total, _LARGEST) or type(steps[key]) is not int or not 0 <= steps[key] <= most:
                return (
                    f"its log has '{key}' {in_short(total)} in {in_short(steps[key])} steps, which cannot be; the "
                    f"client's samples give {most}"
                )
            largest = 1.0 if key == _LOST or due is None else due.most(key)
            if key.startswith("count_") and not 0 <= total <= largest:
                return f"its log has '{key}' {in_short(total)}, which is no count from 0 to {largest:g}"
        return None

    def _wrong_names(self, sent: Mapping[str, Any], asked: Mapping[str, Any], due: Due | None) -> str | None:
        """Everything that was asked for is sent, unless there was no step to make."""
        for kind, names in sent.items():
            if not isinstance(names, list) or names not in ([], list(self.sent[kind])):
                return f"it sends {in_short(names)} as {kind}; expected {list(self.sent[kind])}"
        if sent["first"] and not asked.get("is_first"):
            return "it sends what only the first client of a cohort was asked for"
        idle = asked.get("kind") == "train" and due is not None and due.is_idle
        for kind, names in sent.items():
            wanted = [] if idle or (kind == "first" and not asked.get("is_first")) else list(self.sent[kind])
            if names != wanted:
                steps = "" if due is None else f" of a client with {due.steps} steps"
                return f"it sends {in_short(names)} as {kind}; expected {wanted}{steps}"
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

    def _wrong_values(self, reply: Reply, due: Due | None) -> str | None:
        weight = 0.0 if due is None else self._weight(reply.tensors, due)
        for name, tree in unflatten(reply.tensors).items():
            own = name.partition("/")[2]
            if own in self.passes:
                wrong = wrong_measure(name, tree, self.passes[own])
            else:
                wrong = beyond(name, tree, self.declared[own].bound)
                wrong = self._wrong_sum(name, tree, due, weight) if wrong is None and due is not None else wrong
            if wrong is not None:
                return wrong
        return None

    def _weight(self, tensors: Tree, due: Due) -> float:
        """What a client's sums are multiplied by: the usual weight, or the one that a method sends."""
        declared = self.declared.get(_WEIGHT.partition("/")[2])
        if declared is None or declared.of is own_weight:
            return due.weight
        return max((float(leaf.max()) for name, leaf in tensors.items() if name.startswith(f"{_WEIGHT}/")), default=0.0)

    def _wrong_sum(self, name: str, tree: Tree, due: Due, weight: float) -> str | None:
        """What the client's own samples and the model rule out."""
        declared = self.declared[name.partition("/")[2]]
        if name == _WEIGHT:
            return wrong_weight(name, tree, due, exact=declared.of is own_weight)
        if declared.by_class and declared.reduce != "each":
            return wrong_classes(name, tree, due.counts)
        longest = self.longest.get(name, math.inf) * max(1.0, weight)
        if name in self.longest and (norm := float(tree_norm(tree))) > longest:
            return f"'{name}' has length {norm:.3g}; the longest allowed is {longest:.3g} (flower.max_norm)"
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
    if not all(_is_number(facts.get(key), most) and facts[key] >= 0 for key, most in _TOLD.items()):
        return "its seconds or its bytes are no numbers that can be"
    if not isinstance(facts.get("kept", False), bool):
        return "it does not say whether it has kept a state"
    sent = facts.get("sent")
    if not isinstance(sent, dict) or sent.keys() != set(KINDS):
        return "it does not say what it sends"
    return None


def _is_number(given: object, most: float) -> bool:
    """Whether something is a number of a size that can be; JSON knows NaN, infinity and integers of any length."""
    return type(given) in (int, float) and -most <= given <= most  # type: ignore[operator]
