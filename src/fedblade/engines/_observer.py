"""What diagnostics see of a group of trained clients, side by side."""

from collections.abc import Sequence
from dataclasses import replace

from fedblade.core.client_diagnostics import Clock, DiagnosticRequest, DiagnosticSums, measured_passes
from fedblade.core.passes import PassModel
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.sums import Sum, Sums
from fedblade.core.tree import State, Tree
from fedblade.engines._chunks import GroupData
from fedblade.engines._group import repeated
from fedblade.engines._group_finish import GroupEnd, add_up_group
from fedblade.engines._group_passes import GroupPasses


class Observer:
    """Runs the sums of a `DiagnosticRequest` for groups of a cohort."""

    def __init__(self, passes: GroupPasses, diagnostics: DiagnosticRequest, cohort: Sequence[ClientTask]) -> None:
        self._passes = passes
        self._diagnostics = diagnostics
        self._first = min((task.client for task in cohort if task.num_steps), default=None)

    def observe(self, tasks: Sequence[ClientTask], received: Received, model: LocalModel) -> DiagnosticSums:
        """What a group adds; the cohort's first client also adds the sums that are of the first client alone."""
        clock, diagnostics = Clock(self._diagnostics.indices), self._diagnostics
        of_all = self._add_up(tasks, received, model, diagnostics.every)
        of_first = Sums()
        positions = [position for position, task in enumerate(tasks) if task.client == self._first]
        if diagnostics.first and positions:
            position = positions[0]
            alone = _one_client(position, received, model)
            of_first = self._add_up([tasks[position]], *alone, diagnostics.first)
        return DiagnosticSums(of_all, of_first, clock.seconds())

    def _add_up(
        self, tasks: Sequence[ClientTask], received: Received, model: LocalModel, sums: tuple[Sum, ...]
    ) -> Sums:
        if not sums:
            return Sums()
        passes, diagnostics = self._passes, self._diagnostics
        models = replace(
            PassModel.of_client(received, model),
            fixed={name: repeated(leaf, len(tasks)) for name, leaf in received.fixed.items()},
            anchor=received.anchor,
            anchor_buffers=received.buffers,
        )
        data = GroupData(diagnostics.samples, [diagnostics.indices] * len(tasks))
        totals = passes.run_for_sums(tasks, received, model, sums)
        totals |= passes.run(measured_passes(sums), models, data)
        return add_up_group(GroupEnd(passes.many.problem, tasks, received, model), sums, totals)


def _one_client(position: int, received: Received, model: LocalModel) -> tuple[Received, LocalModel]:
    """One client of a group, still with a client axis."""

    def pick(tree: Tree) -> Tree:
        return {name: leaf[position : position + 1] for name, leaf in tree.items()}

    client: State = {name: pick(tree) for name, tree in received.client.items()}
    task = replace(received.task, counts=received.task.counts[position : position + 1])
    alone = replace(received, task=task, anchor=pick(received.anchor), buffers=pick(received.buffers), client=client)
    return alone, LocalModel(pick(model.params), pick(model.buffers), {})
