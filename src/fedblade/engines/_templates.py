"""What honest replies look like, found out by a client of the server's own with two samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedblade.core.cohort import Cohort
from fedblade.core.observe import Watch
from fedblade.core.plan import IntArray
from fedblade.core.problem import Problem
from fedblade.core.state import MemoryStore, ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.engines._admission import Template
from fedblade.engines.base import Engine, RoundOutcome

_SAMPLES = 2


@dataclass(frozen=True)
class _Sample:
    """The first samples there are, for a client that only shows what a reply looks like."""

    counted: IntArray

    def indices(self, client: int, round_index: int) -> IntArray:  # noqa: ARG002
        """The same for everyone."""
        return np.arange(_SAMPLES)

    def counts(self, client: int, round_index: int) -> IntArray:  # noqa: ARG002
        """Samples per class [classes]."""
        return self.counted

    def removed(self, client: int, round_index: int) -> int | None:  # noqa: ARG002
        """Nothing is."""
        return None


class Templates:
    """Templates of replies, each made when it is first needed."""

    def __init__(self, problem: Problem, local: Engine) -> None:
        self._problem, self._local = problem, local
        self._made: dict[tuple[str, ...], Template] = {}

    def get(
        self, kind: str, server: ServerState, tasks: Cohort, declared: tuple[Sum, ...], watch: Watch | None, lr: float
    ) -> Template:
        """The template of what a client of the cohort sends."""
        watched = () if watch is None else (*watch.every, *watch.first)
        key = (kind, *(each.name for each in (*declared, *watched)))
        if key not in self._made:
            outcome = self._try(kind, server, self._own(tasks), declared, watch, lr)
            self._made[key] = Template.of(outcome, (*declared, *watched))
        return self._made[key]

    def of_passes(self, server: ServerState, passes: Sequence[DataPass]) -> Template:
        """The template of what a client measures."""
        key = ("measure", *(each.name for each in passes))
        if key not in self._made:
            some = torch.arange(_SAMPLES, device=self._problem.samples.labels.device)
            totals = self._local.measure(server, replace(self._problem.samples, augment=None), some, passes)
            self._made[key] = Template.of(RoundOutcome(Sums(totals, dict.fromkeys(totals, "sum"))), (), measured=True)
        return self._made[key]

    def _own(self, tasks: Cohort) -> Cohort:
        """A cohort of one client with two samples and a step in every phase."""
        labels = self._problem.samples.labels[:_SAMPLES].cpu().numpy()
        shards = _Sample(np.bincount(labels, minlength=self._problem.network.num_classes))
        planner = replace(tasks.planner, shards=shards)
        phases = tuple(replace(phase, steps=1) for phase in planner.phases)
        return Cohort(planner, tasks.round, (0,), phases)

    def _try(
        self,
        kind: str,
        server: ServerState,
        tasks: Cohort,
        declared: tuple[Sum, ...],
        watch: Watch | None,
        lr: float,
    ) -> RoundOutcome:
        if kind == "collect":
            return self._local.collect(server, tasks, MemoryStore(), declared)
        few = None if watch is None else replace(watch, indices=watch.indices[:_SAMPLES])
        return self._local.train(server, tasks, MemoryStore(), lr, lambda _: None, few)
