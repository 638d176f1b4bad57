"""Templates of honest replies. The server makes them by training a client of two samples itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from fedblade.core.client_diagnostics import DiagnosticRequest
from fedblade.core.cohort import Cohort
from fedblade.core.end import total_effective_steps, trained_phases
from fedblade.core.plan import IntArray
from fedblade.core.problem import Problem
from fedblade.core.state import MemoryStore, ServerState, unflatten
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.tree import tree_norm
from fedblade.engines.base import Engine, RoundOutcome
from fedblade.engines.nodes._admission import Template
from fedblade.engines.nodes._bounds import ExpectedWork, LengthLimit
from fedblade.engines.nodes._dispatch import RoundRules

_SAMPLES = 2


@dataclass(frozen=True)
class _TwoSamples:
    """A split in which every client holds the first two samples, or the only sample twice."""

    num_classes: int
    labels: IntArray

    def indices(self, client: int, round_index: int) -> IntArray:  # noqa: ARG002
        """The same two indices for every client."""
        return np.arange(_SAMPLES) % len(self.labels)

    def counts(self, client: int, round_index: int) -> IntArray:
        """Samples per class [classes]."""
        return np.bincount(self.labels[self.indices(client, round_index)], minlength=self.num_classes)

    def removed(self, client: int, round_index: int) -> int | None:  # noqa: ARG002
        """No sample is removed."""
        return None


class Templates:
    """Templates of replies, each made when it is first needed.

    A sum with the shape of the model may be `rules.max_norm` times as long as the model; a model shorter than 1 counts
    as 1.
    """

    def __init__(self, problem: Problem, local: Engine, rules: RoundRules) -> None:
        self._problem, self._local, self._rules = problem, local, rules
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
        requested = () if diagnostics is None else (*diagnostics.every, *diagnostics.first)
        small = None if diagnostics is None else replace(diagnostics, indices=diagnostics.indices[:_SAMPLES])
        template = self._get(
            ("train", *(sum_.name for sum_ in requested), *self._round_if_it_matters(tasks)),
            (*declared, *requested),
            lambda: self._local.train(server, self._two_sample_cohort(tasks), MemoryStore(), lr, lambda _: None, small),
        )
        return self._bounded(template, server, tasks)

    def of_exchange(self, server: ServerState, tasks: Cohort, declared: tuple[Sum, ...]) -> Template:
        """The template of what a client of the cohort sends in an exchange."""
        template = self._get(
            ("collect", *(sum_.name for sum_ in declared)),
            declared,
            lambda: self._local.collect(server, self._two_sample_cohort(tasks), MemoryStore(), declared),
        )
        return self._bounded(template, server, tasks)

    def of_passes(self, server: ServerState, passes: Sequence[DataPass]) -> Template:
        """The template of what a client measures."""
        key = ("measure", *(data_pass.name for data_pass in passes))
        if key not in self._made:
            labels = self._problem.samples.labels
            indices = torch.arange(_SAMPLES, device=labels.device) % len(labels)
            totals = self._local.measure(server, replace(self._problem.samples, augment=None), indices, passes)
            self._made[key] = Template.of(RoundOutcome(Sums(totals, dict.fromkeys(totals, "sum"))), (), passes)
        return self._made[key]

    def _round_if_it_matters(self, tasks: Cohort) -> tuple[str, ...]:
        """The round, if a term depends on it, because what the term logs may then depend on the round too."""
        method = self._problem.method
        phase_losses = [method.losses if phase.losses is None else phase.losses for phase in method.phases]
        terms = [term for losses in phase_losses for term in losses]
        return (str(tasks.round),) if any(getattr(term, "by_round", False) for term in terms) else ()

    def _get(self, key: tuple[str, ...], declared: Sequence[Sum], make: Callable[[], RoundOutcome]) -> Template:
        if key not in self._made:
            self._made[key] = Template.of(make(), declared)
        return self._made[key]

    def _bounded(self, template: Template, server: ServerState, tasks: Cohort) -> Template:
        """The template with the limits that follow from this round's model and from the clients' class counts."""
        model = {name: leaf.shape for name, leaf in server.params.items()}
        like_model = frozenset(
            name
            for name, tree in unflatten(template.tensors).items()
            if all(model.get(leaf) == tensor.shape for leaf, tensor in tree.items())
        )
        rules, model_length = self._rules, max(1.0, float(tree_norm(server.params)))
        lengths = LengthLimit(like_model, model_length, rules.max_norm, rules.setting("max_norm"))
        return replace(template, expected_work=partial(self._work, tasks), lengths=lengths, anchor=server.params)

    def _work(self, tasks: Cohort, client: int) -> ExpectedWork:
        """What a client has to do, with the effect of momentum on its steps."""
        work = expected_work(tasks, client)
        trained = trained_phases(self._problem, work.phase_steps, self._problem.method.phases)
        return replace(work, effective_steps=total_effective_steps(trained))

    def _two_sample_cohort(self, tasks: Cohort) -> Cohort:
        """A cohort of one client with two samples and one step in every phase."""
        labels = self._problem.samples.labels.cpu().numpy()
        shards = _TwoSamples(self._problem.network.num_classes, labels)
        # Two samples may be less than a batch. The batch is kept, because a client without a step sends nothing.
        planner = replace(tasks.planner, shards=shards, last_batch="keep")
        phases = tuple(replace(phase, steps=1) for phase in planner.phases)
        return Cohort(planner, tasks.round, (0,), phases)


def expected_work(tasks: Cohort, client: int) -> ExpectedWork:
    """What a client has to do, by its class counts alone: the server has no samples of the client."""
    planner = tasks.planner
    counts = torch.from_numpy(np.ascontiguousarray(planner.shards.counts(client, tasks.round))).double()
    phases = planner.phases if tasks.phases is None else tasks.phases
    work = planner.workload(int(counts.sum()), phases)
    return ExpectedWork(counts, work.steps, work.skipped_singletons, work.weight)
