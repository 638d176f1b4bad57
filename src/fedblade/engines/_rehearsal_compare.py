"""What a rehearsal is made of: small clients, their numbers side by side against those alone, and what to blame."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedblade.core.errors import NonFinite, Unsupported
from fedblade.core.local import Trace
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import Problem
from fedblade.core.tree import State, Tree, tree_map, tree_norm

TOLERANCE, ROUGHLY = 0.005, 0.1
"""Of the numbers compared: far above rounding, far below what padding does to a mean; the second for bfloat16."""
ROUNDING = 2
"""Roundings by which numbers may differ that cancel out, of what they are made of."""
SMALL_PART = 0.1
"""Of the tolerance for a whole update: how far a tensor that hardly moves may be off."""
SAMPLES = 6
"""Samples of a batch, and of a client, at most."""
STEPS = 2
"""Of each phase: a term that compares with the received model is 0 in the first."""
LONGEST = 100
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
        return Comparison(TOLERANCE if reduced is None else ROUGHLY, rounding, padded)

    def features(self, found: Tensor, expected: Tensor) -> None:
        """Features [batch, dim] of real samples."""
        if not self._close(found, expected, self.rounding * _norm(expected)):
            reason = "mixes samples of a batch" if self.padded else "gives other features with clients side by side"
            raise Unsupported(f"the model {reason}")

    def tree(self, what: str, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], whole: float = 0.0) -> None:
        """Leaves one by one; a small one may be off by roundings of the `whole` that it is made of."""
        _same_leaves(what, found, expected)
        slack = self.rounding * max(whole, _whole(expected))
        if not all(self._close(found[name], leaf, slack) for name, leaf in expected.items()):
            self.refuse(what)

    def logged(self, trace: Trace, alone: Sequence[Trace]) -> None:
        """What steps logged under each name, the terms before what they log."""
        names = sorted({name for entry in trace for name in entry}, key=lambda name: (not _is_term(name), name))
        found = {name: torch.stack([entry[name] for entry in trace if name in entry]) for name in names}
        expected = {
            name: torch.stack([torch.stack([entry[name] for entry in own if name in entry]) for own in alone], 1)
            for name in names
        }
        whole = _whole({name: leaf for name, leaf in expected.items() if _is_term(name)})
        for name in names:
            what = f"the term {name.replace('loss_', '', 1)}" if _is_term(name) else f"the logged {name}"
            self.tree(what, {"": found[name]}, {"": expected[name]}, whole if _is_term(name) else 0.0)

    def update(self, what: str, start: Tree, found: Tree, expected: Tree) -> None:
        """How tensors have changed from `start`; one that hardly moved is seen beside all that moved."""
        _same_leaves(what, found, expected)
        moved, alone = (
            {name: leaf.double() - start[name].double() for name, leaf in tree.items()} for tree in (found, expected)
        )
        slack = max(self.rounding * _whole(expected), SMALL_PART * self.tolerance * _whole(alone))
        for name, leaf in alone.items():
            if not self._close(moved[name], leaf, slack):
                self.refuse(f"{what} of {name}")

    def refuse(self, what: str) -> None:
        """Say that the numbers are others, and what has most likely been forgotten."""
        advice = "; it has to leave out what view.mask masks" if self.padded else ""
        raise Unsupported(f"{what} gives other numbers side by side{advice}")

    def _close(self, found: Tensor, expected: Tensor, slack: float) -> bool:
        """Numbers that are not finite for a client alone say nothing."""
        finite = expected.isfinite()
        gap = torch.where(finite, found.double() - expected.double(), 0)
        return bool(gap.norm() <= self.tolerance * _norm(expected) + slack)


def check_client_state(start: State, kept: State) -> None:
    """Refuse state that a client keeps in other tensors than it began with: clients of both kinds may meet."""
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
    """Say of an error who made it, and the first sentence of it."""
    try:
        yield
    except (Unsupported, NonFinite):
        raise
    except Exception as error:
        first = re.split(r"(?<=[.!?])\s", str(error).strip())[0].rstrip(".")
        reason = textwrap.shorten(first, LONGEST, placeholder=" …") or type(error).__name__
        raise Unsupported(f"{culprit} fails with clients side by side: {reason}") from error


def _same_leaves(what: str, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    if {name: leaf.shape for name, leaf in found.items()} != {name: leaf.shape for name, leaf in expected.items()}:
        raise Unsupported(f"{what} has other names or shapes side by side")


def _norm(numbers: Tensor) -> float:
    return float(torch.where(numbers.isfinite(), numbers.double(), 0).norm())


def _whole(tree: Mapping[str, Tensor]) -> float:
    return float(tree_norm(tree_map(lambda leaf: torch.where(leaf.isfinite(), leaf.double(), 0), tree)))


def _is_term(name: str) -> bool:
    """Whether a step logs the value of a term under this name, which a track precedes."""
    return name.startswith("loss_") or "_loss_" in name


def cut(task: ClientTask, least: int, share: float, *, last: bool = False) -> ClientTask:
    """A client with the first steps of every phase, on a share of few samples, and passes over as few.

    A batch keeps at least `least` samples: the first ones, or the `last`.
    """
    held, draws = task.indices, task.pass_draws
    part = _part(len(held), 1, share, last=last)
    phases = ((phase * STEPS)[:STEPS] for phase in task.phases)
    return replace(
        task,
        num_samples=len(held[part]),
        phases=tuple(tuple(_few(batch, least, share, last=last) for batch in phase) for phase in phases),
        draw_indices=lambda: held[part],
        draw_pass=lambda: None if draws is None else draws[part],
    )


def _few(batch: Batch, least: int, share: float, *, last: bool) -> Batch:
    part = _part(len(batch.indices), least, share, last=last)
    draws, noise = (None if rows is None else rows[part] for rows in (batch.draws, batch.noise))
    then = None if batch.then is None else _few(batch.then, least, share, last=last)
    return Batch(batch.indices[part], draws, noise, then)


def _part(size: int, least: int, share: float, *, last: bool) -> slice:
    kept = max(least, round(share * min(SAMPLES, size)))
    return slice(max(0, size - kept), size) if last else slice(kept)
