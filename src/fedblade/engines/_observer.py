"""What diagnostics see of a group of trained clients, side by side."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.core.client_diagnostics import Clock, DiagnosticRequest, DiagnosticSums, measured_passes
from fedblade.core.passes import PassModel
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import State, Tree
from fedblade.engines._group_finish import added_up
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._portions import Data


class Observer:
    """Runs the sums of a `DiagnosticRequest` for groups of a cohort."""

    def __init__(self, passes: GroupPasses, diagnostics: DiagnosticRequest, cohort: Sequence[ClientTask]) -> None:
        self._passes = passes
        self._diagnostics = diagnostics
        self._first = min((task.client for task in cohort if task.num_steps), default=None)

    def of_group(self, tasks: Sequence[ClientTask], received: Received, row: LocalModel) -> DiagnosticSums:
        """What a group adds; the cohort's first client adds the sums of the first alone as well."""
        clock = Clock(self._diagnostics.indices)
        diagnostics, places = (
            self._diagnostics,
            [place for place, task in enumerate(tasks) if task.client == self._first],
        )
        every = self._added_up(tasks, received, row, diagnostics.every)
        alone = Sums()
        if diagnostics.first and places:
            alone = self._added_up([tasks[places[0]]], *_only(places[0], received, row), diagnostics.first)
        return DiagnosticSums(every, alone, clock.seconds())

    def _added_up(
        self, tasks: Sequence[ClientTask], received: Received, row: LocalModel, sums: tuple[Sum, ...]
    ) -> Sums:
        if not sums:
            return Sums()
        passes, diagnostics = self._passes, self._diagnostics
        fixed = {name: leaf.expand(len(tasks), *leaf.shape) for name, leaf in received.fixed.items()}
        models = PassModel.of_client(received, row)
        models = replace(models, fixed=fixed, anchor=received.anchor, anchor_buffers=received.buffers)
        data = Data(diagnostics.samples, [diagnostics.indices] * len(tasks))
        found = passes.of_sums(tasks, received, row.params, row.buffers, sums)
        found |= passes.run(measured_passes(sums), models, data)
        return added_up(passes.many.problem, tasks, received, row, sums, found)


def _only(place: int, received: Received, row: LocalModel) -> tuple[Received, LocalModel]:
    """One client of a group, still with a client axis."""

    def at(tree: Tree) -> Tree:
        return {name: leaf[place : place + 1] for name, leaf in tree.items()}

    client: State = {name: at(tree) for name, tree in received.client.items()}
    task = replace(received.task, counts=received.task.counts[place : place + 1])
    alone = replace(received, task=task, anchor=at(received.anchor), buffers=at(received.buffers), client=client)
    return alone, LocalModel(at(row.params), at(row.buffers), {})
