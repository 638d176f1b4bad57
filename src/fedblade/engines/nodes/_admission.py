"""Decides which replies of clients may be added to the sums; every other reply is refused with a reason."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedblade.core.state import unflatten
from fedblade.core.sums import DataPass, Sent, Sum, own_weight
from fedblade.core.tree import Tree
from fedblade.core.untrusted_text import SHOWN_CHARACTERS, is_number, short_repr
from fedblade.engines.base import RoundOutcome
from fedblade.engines.nodes._bounds import (
    ExpectedWork,
    LengthLimit,
    bound_violation,
    class_violation,
    implied_violation,
    measurement_violation,
    weight_violation,
)
from fedblade.engines.nodes._transport import Reply
from fedblade.engines.packing import KINDS, pack

MISSING, REFUSED = "count_missing_clients", "count_refused_replies"
"""Counters that the server adds to the log."""
_LOST = "count_lost_states"
"""The counter that a node adds to the log of its client."""
_LARGEST = 1e30
"""No honest loss comes near it, and sums of such numbers stay finite."""
_MAX_SECONDS = 1e6
"""Seconds that the diagnostics of a client may take."""
_WEIGHT = "sums/weight"
_FACTS = frozenset({"client", "round", "kind", "is_first", "sent", "totals", "steps", "bytes_up", "seconds", "kept"})
_NUMERIC_FACTS = {"seconds": _MAX_SECONDS, "bytes_up": _LARGEST}


@dataclass(frozen=True)
class Template:
    """What an honest reply looks like: names, shapes and types of its tensors.

    `declared` are its sums by name, or `passes` if the client only measures a model. `expected_work` gives what a
    client was asked to do, and `lengths` limits the sums with the shape of the model. `anchor` are the parameters that
    the client received.
    """

    tensors: Tree
    sent: Mapping[str, tuple[str, ...]]
    logged: frozenset[str]
    declared: Mapping[str, Sum]
    passes: Mapping[str, DataPass] = field(default_factory=dict)
    expected_work: Callable[[int], ExpectedWork] | None = None
    lengths: LengthLimit = field(default_factory=LengthLimit)
    anchor: Tree = field(default_factory=dict)

    @staticmethod
    def of(outcome: RoundOutcome, declared: Iterable[Sum], passes: Iterable[DataPass] = ()) -> "Template":
        """The template that the outcome of one client shows."""
        tensors, facts = pack(outcome)
        sent = {kind: tuple(names) for kind, names in facts["sent"].items()}
        sums = {sum_.name: sum_ for sum_ in declared}
        named_passes = {data_pass.name: data_pass for data_pass in passes}
        return Template(tensors, sent, frozenset(facts["totals"]), sums, named_passes)

    def refusal(self, reply: Reply, asked: Mapping[str, Any], test_samples: int | None = None) -> str | None:
        """Why a reply must not be used, or None; `asked` are the facts that the reply has to repeat.

        `test_samples` are the samples on which the client was asked to measure, if the server knows their number.
        """
        if reply.error is not None:
            return reply.error
        work = None if self.expected_work is None else self.expected_work(int(asked["client"]))
        return (
            _wrong_facts(reply.facts, asked)
            or self._wrong_log(reply.facts, work)
            or self._wrong_names(reply.facts["sent"], asked, work)
            or self._wrong_tensors(reply)
            or self._wrong_values(reply, work, test_samples)
        )

    def update_length(self, reply: Reply, client: int) -> float | None:
        """The length of a client's update, in the unit of the limit; None if it sends no sum like the model."""
        work = None if self.expected_work is None else self.expected_work(client)
        trees = unflatten(reply.tensors)
        return None if work is None else self.lengths.largest(trees, self._weight(reply.tensors, work))

    def _wrong_log(self, facts: Mapping[str, Any], work: ExpectedWork | None) -> str | None:
        """A log has only the names of the template, and numbers that the client's plan allows."""
        totals, steps = facts["totals"], facts["steps"]
        if totals.keys() != steps.keys():
            return "its log has not one total and one number of steps for each of its names"
        for key, total in totals.items():
            if key not in self.logged and key != _LOST:
                return f"its log has {short_repr(key)}, which is no loss or counter of a client"
            max_steps = 1 if key == _LOST or work is None else work.steps
            if not is_number(total, _LARGEST) or type(steps[key]) is not int or not 0 <= steps[key] <= max_steps:
                return (
                    f"its log has '{key}' {short_repr(total)} in {short_repr(steps[key])} steps, which cannot be; the "
                    f"client's samples give {max_steps}"
                )
            max_count = 1.0 if key == _LOST or work is None else work.max_count(key)
            if key.startswith("count_") and not 0 <= total <= max_count:
                return f"its log has '{key}' {short_repr(total)}, which is no count from 0 to {max_count:g}"
        return None

    def _wrong_names(self, sent: Mapping[str, Any], asked: Mapping[str, Any], work: ExpectedWork | None) -> str | None:
        """A reply has every sum that was asked for, or none if the client had no step to make."""
        for kind, names in sent.items():
            if not isinstance(names, list) or names not in ([], list(self.sent[kind])):
                return f"it sends {short_repr(names)} as {kind}; expected {list(self.sent[kind])}"
        if sent["first"] and not asked.get("is_first"):
            return "it sends what only the first client of a cohort was asked for"
        idle = asked.get("kind") == "train" and work is not None and work.is_idle
        for kind, names in sent.items():
            expected = [] if idle or (kind == "first" and not asked.get("is_first")) else list(self.sent[kind])
            if names != expected:
                steps = "" if work is None else f" of a client with {work.steps} steps"
                return f"it sends {short_repr(names)} as {kind}; expected {expected}{steps}"
        return None

    def _wrong_tensors(self, reply: Reply) -> str | None:
        kinds = [kind for kind, names in reply.facts["sent"].items() if names]
        expected = {key: leaf for key, leaf in self.tensors.items() if key.partition("/")[0] in kinds}
        if reply.tensors.keys() != expected.keys():
            differing = sorted(reply.tensors.keys() ^ expected.keys())
            examples = [key[:SHOWN_CHARACTERS] for key in differing[:3]]
            return f"its tensors differ in {len(differing)} names, such as {examples}"
        for key, leaf in reply.tensors.items():
            if leaf.shape != expected[key].shape or leaf.dtype != expected[key].dtype:
                return (
                    f"'{key}' has shape {list(leaf.shape)[:8]} and type {leaf.dtype}; expected "
                    f"{list(expected[key].shape)} and {expected[key].dtype}"
                )
        return None

    def _wrong_values(self, reply: Reply, work: ExpectedWork | None, test_samples: int | None) -> str | None:
        weight = 0.0 if work is None else self._weight(reply.tensors, work)
        trees = unflatten(reply.tensors)
        for key, tree in trees.items():
            name = key.partition("/")[2]
            if name in self.passes:
                violation = measurement_violation(key, tree, self.passes[name], test_samples)
            else:
                violation = bound_violation(key, tree, self.declared[name].bound)
                if violation is None and work is not None:
                    violation = self._wrong_sum(key, tree, work, weight)
            if violation is not None:
                return violation
        return None if work is None else self._wrong_implied(trees, work, weight)

    def _weight(self, tensors: Tree, work: ExpectedWork) -> float:
        """The factor of the client's sums: the usual weight, or the weight that a method sends."""
        declared = self.declared.get(_WEIGHT.partition("/")[2])
        if declared is None or declared.of is own_weight:
            return work.weight
        return max((float(leaf.max()) for name, leaf in tensors.items() if name.startswith(f"{_WEIGHT}/")), default=0.0)

    def _wrong_sum(self, key: str, tree: Tree, work: ExpectedWork, weight: float) -> str | None:
        """Check a sum against the client's samples and the length of the model."""
        declared = self.declared[key.partition("/")[2]]
        if key == _WEIGHT:
            return weight_violation(key, tree, work, exact=declared.of is own_weight)
        if declared.by_class and declared.reduce != "each":
            return class_violation(key, tree, work.counts)
        return self.lengths.violation(key, tree, weight)

    def _wrong_implied(self, trees: Mapping[str, Tree], work: ExpectedWork, weight: float) -> str | None:
        """Compute what follows from the plan and from the client's other sums, and compare."""
        sums = {key.partition("/")[2]: tree for key, tree in trees.items() if key.startswith("sums/")}
        sent = Sent(weight, work.effective_steps, sums, work.counts, self.anchor)
        for name, tree in sums.items():
            implied = self.declared[name].implied
            if implied is not None and (violation := implied_violation(f"sums/{name}", tree, implied(sent))):
                return violation
        return None


def _wrong_facts(facts: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """What is wrong with the facts of a reply; None if they repeat the `asked` ones and have the right types."""
    if not facts.keys() <= _FACTS:
        return f"it states {short_repr(min(facts.keys() - _FACTS, key=str))}, which nobody asked for"
    for key, value in asked.items():
        if type(facts.get(key)) is not type(value) or facts[key] != value:
            return f"it answers {key} {short_repr(facts.get(key))}; asked was {value!r}"
    if not isinstance(facts.get("totals"), dict) or not isinstance(facts.get("steps"), dict):
        return "it has no log of its losses"
    if not all(is_number(facts.get(key), most) and facts[key] >= 0 for key, most in _NUMERIC_FACTS.items()):
        return "its seconds or its bytes are not numbers of a possible size"
    if not isinstance(facts.get("kept", False), bool):
        return "it does not say whether it has kept a state"
    sent = facts.get("sent")
    if not isinstance(sent, dict) or sent.keys() != set(KINDS):
        return "it does not say what it sends"
    return None
