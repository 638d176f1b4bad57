"""What honest replies look like, found out by a client of the server's own with two samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedblade.core.cohort import Cohort
from fedblade.core.observe import Watch
from fedblade.core.plan import IntArray
from fedblade.core.problem import Problem
from fedblade.core.state import MemoryStore, ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.engines.base import Engine, RoundOutcome
from fedblade.engines.nodes._admission import Template

_SAMPLES = 2


@dataclass(frozen=True)
class _Sample:
    """The first samples there are, for a client that only shows what a reply looks like."""

    num_classes: int
    labels: IntArray

    def indices(self, client: int, round_index: int) -> IntArray:  # noqa: ARG002
        """The same for everyone; where there is one sample, it twice."""
        return np.arange(_SAMPLES) % len(self.labels)

    def counts(self, client: int, round_index: int) -> IntArray:
        """Samples per class [classes]."""
        return np.bincount(self.labels[self.indices(client, round_index)], minlength=self.num_classes)

    def removed(self, client: int, round_index: int) -> int | None:  # noqa: ARG002
        """Nothing is."""
        return None


class Templates:
    """Templates of replies, each made when it is first needed."""

    def __init__(self, problem: Problem, local: Engine) -> None:
        self._problem, self._local = problem, local
        self._made: dict[tuple[str, ...], Template] = {}

    def of_training(
        self, server: ServerState, tasks: Cohort, declared: tuple[Sum, ...], watch: Watch | None, lr: float
    ) -> Template:
        """The template of what a client of the cohort sends after training."""
        watched = () if watch is None else (*watch.every, *watch.first)
        few = None if watch is None else replace(watch, indices=watch.indices[:_SAMPLES])
        return self._get(
            ("train", *(each.name for each in watched)),
            (*declared, *watched),
            lambda: self._local.train(server, self._own(tasks), MemoryStore(), lr, lambda _: None, few),
        )

    def of_exchange(self, server: ServerState, tasks: Cohort, declared: tuple[Sum, ...]) -> Template:
        """The template of what a client of the cohort sends in an exchange."""
        return self._get(
            ("collect", *(each.name for each in declared)),
            declared,
            lambda: self._local.collect(server, self._own(tasks), MemoryStore(), declared),
        )

    def of_passes(self, server: ServerState, passes: Sequence[DataPass]) -> Template:
        """The template of what a client measures."""
        key = ("measure", *(each.name for each in passes))
        if key not in self._made:
            labels = self._problem.samples.labels
            some = torch.arange(_SAMPLES, device=labels.device) % len(labels)
            totals = self._local.measure(server, replace(self._problem.samples, augment=None), some, passes)
            self._made[key] = Template.of(RoundOutcome(Sums(totals, dict.fromkeys(totals, "sum"))), (), measured=True)
        return self._made[key]

    def _get(self, key: tuple[str, ...], declared: Sequence[Sum], make: Callable[[], RoundOutcome]) -> Template:
        if key not in self._made:
            self._made[key] = Template.of(make(), declared)
        return self._made[key]

    def _own(self, tasks: Cohort) -> Cohort:
        """A cohort of one client with two samples and a step in every phase."""
        labels = self._problem.samples.labels.cpu().numpy()
        shards = _Sample(self._problem.network.num_classes, labels)
        planner = replace(tasks.planner, shards=shards)
        phases = tuple(replace(phase, steps=1) for phase in planner.phases)
        return Cohort(planner, tasks.round, (0,), phases)
