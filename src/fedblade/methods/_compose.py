"""Method names: a base method, regularisers added with `+`, fine-tuning with `-ft`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedblade.core.errors import Misconfigured
from fedblade.core.method import Method
from fedblade.core.registry import Entry, Registry, methods, regularisers
from fedblade.core.terms import AnyTerm
from fedblade.personal import FINE_TUNING_REVISION, finetuned

TUNED = "-ft"
"""Suffix of a method whose clients fine-tune the final model before they are measured."""

LEARNING_RATES = (0.003, 0.01, 0.03, 0.1)
"""What a method without knobs to tune tries."""


@dataclass(frozen=True)
class Composition:
    """A base method, the regularisers added to it, in order, and whether clients fine-tune the final model.

    The knobs of the base are written directly, those of a regulariser in a table with its name.
    """

    name: str
    base: Entry
    added: tuple[Entry, ...]
    tuned: bool = False

    @property
    def search_space(self) -> dict[str, tuple[Any, ...]]:
        """Values to try, by key: of the added regularisers, else of the base; the learning rate if neither has any."""
        added = {f"{entry.name}.{key}": values for entry in self.added for key, values in entry.tune.items()}
        return added or dict(self.base.tune) or {"lr": LEARNING_RATES}

    def revisions(self, knobs: Mapping[str, Any]) -> dict[str, int]:
        """The revision of every part of the name, for checked knobs."""
        added = {f"regulariser {entry.name}": entry.revision_for(knobs.get(entry.name, {})) for entry in self.added}
        tuning = {"fine-tuning": FINE_TUNING_REVISION} if self.tuned else {}
        return {f"method {self.base.name}": self.base.revision_for(knobs), **added, **tuning}

    def build(self, knobs: Mapping[str, Any]) -> Method:
        """The method value for checked knobs."""
        tables = {entry.name for entry in self.added}
        method: Any = self.base.build(**{key: value for key, value in knobs.items() if key not in tables})
        if not isinstance(method, Method):
            raise Misconfigured(
                f"method '{self.base.name}' returned a {type(method).__name__}; expected a fedblade.core.method.Method."
            )
        for entry in self.added:
            method = self._added(method, entry, knobs.get(entry.name, {}))
        made: Method = finetuned(method) if self.tuned else method
        return made

    def _added(self, method: Method, entry: Entry, knobs: Mapping[str, Any]) -> Method:
        """The method with a regulariser. A regulariser whose term is already in the loss is refused.

        Terms are the same if they are of one class, whatever their weights.
        """
        made: Method = entry.make(**knobs)(method)
        for before, after in zip(_kinds(method), _kinds(made), strict=False):
            twice = [kind for kind in before if after.count(kind) > before.count(kind)]
            if twice:
                raise Misconfigured(
                    f"method '{self.name}' already has the term '{twice[0].__name__}', and '+{entry.name}' would add "
                    f"it again; expected each term once. Leave '+{entry.name}' out and set the knobs of the term."
                )
        return made


def compose(name: str) -> Composition:
    """Read a method name such as `fedavg`, `fedprox+feddecorr`, `fedetf-ft` or `my_file.py:my_method+feddecorr`.

    The suffix `-ft` may follow the base or the whole name; both mean the same.
    """
    file, colon, parts = name.rpartition(":")
    base, *added = parts.split("+")
    tuned = _is_tuned(base, methods) or any(_is_tuned(last, regularisers) for last in added[-1:])
    if tuned:
        base, added = base.removesuffix(TUNED), [part.removesuffix(TUNED) for part in added]
    if "" in (base, *added) or len(set(added)) < len(added):
        raise Misconfigured(
            f"method '{name}' has an empty or a repeated part; expected a+b with different parts. Leave one out."
        )
    entries = tuple(regularisers.get(part) for part in added)
    return Composition(name, methods.get(file + colon + base), entries, tuned)


def _kinds(method: Method) -> list[list[type[AnyTerm]]]:
    """The classes of the terms of every loss: the method's, then those of phases with another loss."""
    phases = (*method.phases, *(method.own.finetune or ()))
    losses = [method.losses, *(phase.losses for phase in phases if phase.losses is not None)]
    return [[type(term) for term in terms] for terms in losses]


def _is_tuned(part: str, known: Registry) -> bool:
    return part.endswith(TUNED) and part not in known.names()
