"""What honest replies look like, found out by a client of the server's own with two samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.plan import IntArray
from fedblade.core.problem import Problem
from fedblade.core.state import MemoryStore, ServerState, unflatten
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.tree import tree_norm
from fedblade.engines.base import Engine, RoundOutcome
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._bounds import Due

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
    """Templates of replies, each made when it is first needed.

    A sum that is shaped as the model may be `max_norm` times as long as the model, or as a model of length 1.
    """

    def __init__(self, problem: Problem, local: Engine, max_norm: float = 100.0) -> None:
        self._problem, self._local, self._max_norm = problem, local, max_norm
        self._made: dict[tuple[str, ...], Template] = {}

    def of_training(
        self,
        server: ServerState,
        tasks: Cohort,
        declared: tuple[Sum, ...],
        diagnostics: DiagnosticRequest | None,
        lr: float,
    ) -> Template:
        """The template of what a client of the cohort sends after training."""
        watched = () if diagnostics is None else (*diagnostics.every, *diagnostics.first)
        few = None if diagnostics is None else replace(diagnostics, indices=diagnostics.indices[:_SAMPLES])
        template = self._get(
            ("train", *(each.name for each in watched), *self._moment(tasks)),
            (*declared, *watched),
            lambda: self._local.train(server, self._own(tasks), MemoryStore(), lr, lambda _: None, few),
        )
        return self._bounded(template, server, tasks)

    def of_exchange(self, server: ServerState, tasks: Cohort, declared: tuple[Sum, ...]) -> Template:
        """The template of what a client of the cohort sends in an exchange."""
        template = self._get(
            ("collect", *(each.name for each in declared)),
            declared,
            lambda: self._local.collect(server, self._own(tasks), MemoryStore(), declared),
        )
        return self._bounded(template, server, tasks)

    def of_passes(self, server: ServerState, passes: Sequence[DataPass]) -> Template:
        """The template of what a client measures."""
        key = ("measure", *(each.name for each in passes))
        if key not in self._made:
            labels = self._problem.samples.labels
            some = torch.arange(_SAMPLES, device=labels.device) % len(labels)
            totals = self._local.measure(server, replace(self._problem.samples, augment=None), some, passes)
            self._made[key] = Template.of(RoundOutcome(Sums(totals, dict.fromkeys(totals, "sum"))), (), passes)
        return self._made[key]

    def _moment(self, tasks: Cohort) -> tuple[str, ...]:
        """The round, where terms depend on it: what they log may, too."""
        method = self._problem.method
        chosen = [method.losses if phase.losses is None else phase.losses for phase in method.phases]
        terms = [term for losses in chosen for term in losses]
        return (str(tasks.round),) if any(getattr(term, "by_round", False) for term in terms) else ()

    def _get(self, key: tuple[str, ...], declared: Sequence[Sum], make: Callable[[], RoundOutcome]) -> Template:
        if key not in self._made:
            self._made[key] = Template.of(make(), declared)
        return self._made[key]

    def _bounded(self, template: Template, server: ServerState, tasks: Cohort) -> Template:
        """The template with what this round's model and the clients' counts allow."""
        model = {name: leaf.shape for name, leaf in server.params.items()}
        longest = self._max_norm * max(1.0, float(tree_norm(server.params)))
        shaped = {
            name: longest
            for name, tree in unflatten(template.tensors).items()
            if all(model.get(leaf) == tensor.shape for leaf, tensor in tree.items())
        }
        return replace(template, due=lambda client: due(tasks, client), longest=shaped)

    def _own(self, tasks: Cohort) -> Cohort:
        """A cohort of one client with two samples and a step in every phase."""
        labels = self._problem.samples.labels.cpu().numpy()
        shards = _Sample(self._problem.network.num_classes, labels)
        # Two samples may be less than a batch, and a client without a step shows nothing.
        planner = replace(tasks.planner, shards=shards, last_batch="keep")
        phases = tuple(replace(phase, steps=1) for phase in planner.phases)
        return Cohort(planner, tasks.round, (0,), phases)


def due(tasks: Cohort, client: int) -> Due:
    """What a client has to do by its counts alone: the server plans for clients whose samples it does not have."""
    planner = tasks.planner
    counts = torch.from_numpy(np.ascontiguousarray(planner.shards.counts(client, tasks.round))).double()
    phases = planner.phases if tasks.phases is None else tasks.phases
    work = planner.workload(int(counts.sum()), phases)
    return Due(counts, sum(work.steps), work.skipped_singletons, work.weight)
