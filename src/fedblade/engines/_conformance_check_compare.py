"""Parts of the conformance check: small clients, numbers side by side against numbers of single clients, and errors."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedblade.core.clients import Trace
from fedblade.core.errors import NonFinite, Unsupported
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import Problem
from fedblade.core.tree import State, Tree, tree_map, tree_norm

TOLERANCE, BFLOAT16_TOLERANCE = 0.005, 0.1
"""Relative difference that is allowed: far above rounding, far below the effect of padding on a mean."""
ROUNDING = 2
"""Rounding errors that are allowed where numbers cancel out, in units of the numbers they are made of."""
SMALL_PART = 0.1
"""Share of the tolerance for a whole update that a tensor which hardly changes may differ by."""
SAMPLES = 6
"""The largest number of samples of a batch, and of a client."""
STEPS = 2
"""Steps of each phase: a term that compares with the received model is 0 in the first."""
LONGEST_QUOTE = 100
"""Characters of an error that are quoted."""


@dataclass(frozen=True)
class Comparison:
    """How close numbers have to be; `padded` says that one client's batches are shorter than the other's."""

    tolerance: float
    rounding: float
    padded: bool

    @staticmethod
    def of(problem: Problem, *, padded: bool) -> "Comparison":
        """As close as the types of the run allow."""
        reduced = problem.network.autocast
        rounding = ROUNDING * torch.finfo(reduced or problem.samples.dtype).eps
        return Comparison(TOLERANCE if reduced is None else BFLOAT16_TOLERANCE, rounding, padded)

    def features(self, made: Tensor, expected: Tensor) -> None:
        """Compare features [batch, dim] of real samples."""
        if not self._close(made, expected, self.rounding * _norm(expected)):
            reason = "mixes samples of a batch" if self.padded else "gives other features with clients side by side"
            raise Unsupported(f"the model {reason}")

    def tree(self, what: str, made: Mapping[str, Tensor], expected: Mapping[str, Tensor], whole: float = 0.0) -> None:
        """Compare leaf by leaf; a small leaf may differ by rounding errors of the `whole` that it is made of."""
        _check_leaves(what, made, expected)
        slack = self.rounding * max(whole, _whole(expected))
        if not all(self._close(made[name], leaf, slack) for name, leaf in expected.items()):
            self.refuse(what)

    def logged(self, trace: Trace, single: Sequence[Trace]) -> None:
        """Compare what steps logged under each name, the terms first."""
        names = sorted({name for entry in trace for name in entry}, key=lambda name: (not _is_term(name), name))
        made = {name: torch.stack([entry[name] for entry in trace if name in entry]) for name in names}
        expected = {
            name: torch.stack([torch.stack([entry[name] for entry in steps if name in entry]) for steps in single], 1)
            for name in names
        }
        whole = _whole({name: leaf for name, leaf in expected.items() if _is_term(name)})
        for name in names:
            what = f"the term {name.replace('loss_', '', 1)}" if _is_term(name) else f"the logged {name}"
            self.tree(what, {"": made[name]}, {"": expected[name]}, whole if _is_term(name) else 0.0)

    def update(self, what: str, start: Tree, made: Tree, expected: Tree) -> None:
        """Compare changes from `start`; for a tensor that hardly changed the whole update is the measure."""
        _check_leaves(what, made, expected)
        changes, expected_changes = (
            {name: leaf.double() - start[name].double() for name, leaf in tree.items()} for tree in (made, expected)
        )
        slack = max(self.rounding * _whole(expected), SMALL_PART * self.tolerance * _whole(expected_changes))
        for name, leaf in expected_changes.items():
            if not self._close(changes[name], leaf, slack):
                self.refuse(f"{what} of {name}")

    def refuse(self, what: str) -> None:
        """Raise the error for numbers that differ, with the most likely reason."""
        advice = "; it has to leave out what view.mask masks" if self.padded else ""
        raise Unsupported(f"{what} gives other numbers side by side{advice}")

    def _close(self, made: Tensor, expected: Tensor, slack: float) -> bool:
        """Whether numbers agree, apart from those that are not finite for a single client."""
        finite = expected.isfinite()
        gap = torch.where(finite, made.double() - expected.double(), 0)
        return bool(gap.norm() <= self.tolerance * _norm(expected) + slack)


def check_client_state(start: State, kept: State) -> None:
    """Refuse a state whose tensors change their names, shapes or types: old and new states cannot be stacked."""
    for name, first in start.items():
        now = kept[name]
        kinds = {
            "names": now.keys() == first.keys(),
            "shapes": all(now[key].shape == leaf.shape for key, leaf in first.items() if key in now),
            "types": all(now[key].dtype == leaf.dtype for key, leaf in first.items() if key in now),
        }
        for kind, same in kinds.items():
            if not same:
                raise Unsupported(f"the client state '{name}' changes its tensors' {kind} in a round")


@contextmanager
def blaming(culprit: str) -> Iterator[None]:
    """Turn an error into `Unsupported` with the culprit and the first sentence of the error."""
    try:
        yield
    except (Unsupported, NonFinite):
        raise
    except Exception as error:
        first = re.split(r"(?<=[.!?])\s", str(error).strip())[0].rstrip(".")
        reason = textwrap.shorten(first, LONGEST_QUOTE, placeholder=" …") or type(error).__name__
        raise Unsupported(f"{culprit} fails with clients side by side: {reason}") from error


def _check_leaves(what: str, made: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    if {name: leaf.shape for name, leaf in made.items()} != {name: leaf.shape for name, leaf in expected.items()}:
        raise Unsupported(f"{what} has other names or shapes side by side")


def _norm(numbers: Tensor) -> float:
    return float(torch.where(numbers.isfinite(), numbers.double(), 0).norm())


def _whole(tree: Mapping[str, Tensor]) -> float:
    return float(tree_norm(tree_map(lambda leaf: torch.where(leaf.isfinite(), leaf.double(), 0), tree)))


def _is_term(name: str) -> bool:
    """Whether a step logs the value of a term under this name, with or without the name of a track in front."""
    return name.startswith("loss_") or "_loss_" in name


def shorten(task: ClientTask, least: int, share: float, *, last: bool = False) -> ClientTask:
    """A task with the first steps of every phase and a `share` of a few samples, in batches and in passes.

    A batch keeps at least `least` samples: the first ones, or the `last`.
    """
    indices, draws = task.indices, task.pass_draws
    part = _part(len(indices), 1, share, last=last)
    phases = ((phase * STEPS)[:STEPS] for phase in task.phases)
    return replace(
        task,
        num_samples=len(indices[part]),
        phases=tuple(tuple(_shorten_batch(batch, least, share, last=last) for batch in phase) for phase in phases),
        draw_indices=lambda: indices[part],
        draw_pass=lambda: None if draws is None else draws[part],
    )


def _shorten_batch(batch: Batch, least: int, share: float, *, last: bool) -> Batch:
    part = _part(len(batch.indices), least, share, last=last)
    draws, noise = (None if drawn is None else drawn[part] for drawn in (batch.draws, batch.noise))
    then = None if batch.then is None else _shorten_batch(batch.then, least, share, last=last)
    return Batch(batch.indices[part], draws, noise, then)


def _part(size: int, least: int, share: float, *, last: bool) -> slice:
    kept = max(least, round(share * min(SAMPLES, size)))
    return slice(max(0, size - kept), size) if last else slice(kept)
