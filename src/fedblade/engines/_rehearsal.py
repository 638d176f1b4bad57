"""A rehearsal of what a run will ask of the stacked engine, for two pretended clients on a few real samples.

It trains them for two steps of every phase, ends the round, makes exchanges and measurements, and compares everything
with the same clients alone: code that cannot run side by side raises, and code that takes padding for samples gives
other numbers. The first round has batches of one length, which engines treat in a way of its own; in the second the
clients have what they kept, and the batches of one of them are padded.
"""

from collections.abc import Iterable, Sequence

import torch

from fedblade.core.client_diagnostics import DiagnosticRequest, diagnose_client
from fedblade.core.errors import NonFinite
from fedblade.core.local import train
from fedblade.core.method import Method
from fedblade.core.metric import Metric
from fedblade.core.outcome import StepLog, collect_client, finish
from fedblade.core.passes import PassData, PassModel, client_passes, run_passes
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, own_model, receive
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.terms import GradientTerm, active
from fedblade.core.tree import State, Tree, tree_clone
from fedblade.core.views import StepView
from fedblade.engines._group import each_state, each_tree, receive_group, with_batches
from fedblade.engines._group_finish import collect_group, finish_group
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._many_clients import gather
from fedblade.engines._observer import Observer
from fedblade.engines._own_models import own_models
from fedblade.engines._portions import Data
from fedblade.engines._rehearsal_compare import Comparison, blaming, check_client_state, cut
from fedblade.engines.base import Holder

TWO = 2
"""Clients."""
RATE = 0.05
"""Large enough for the second step to see another model, too small for steps to blow up roundings."""


def rehearse(passes: GroupPasses, server: ServerState, task: ClientTask, metrics: Sequence[Metric]) -> None:
    """Raise `Unsupported` if the method, the model or a metric fails side by side or gives other numbers.

    `task` is a client's that the two are cut from. Leaves nothing behind.
    """
    problem = passes.many.problem
    device, least = problem.samples.labels.device, 2 if problem.network.skips_singletons else 1
    kept: list[State | None] = [None, None]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.inference_mode(False):
        for padded in (False, True):
            tasks = [cut(task, least, 1.0), cut(task, least, 2 / 3 if padded else 1.0, last=True)]
            kept = _Round(passes, server, tasks, kept, padded=padded).play(metrics)


class _Round:
    """A round of two clients, side by side and alone."""

    def __init__(
        self,
        passes: GroupPasses,
        server: ServerState,
        tasks: Sequence[ClientTask],
        kept: Sequence[State | None],
        *,
        padded: bool,
    ) -> None:
        self.passes, self.server, self.tasks, self.kept = passes, server, tasks, kept
        self.problem = passes.many.problem
        self.compare = Comparison.of(self.problem, padded=padded)
        with blaming("the method"):
            received = receive_group(self.problem, server, tasks, kept, RATE)
            self.together = with_batches(received, tasks)
            self.alone = [receive(self.problem, server, task, own, RATE) for task, own in zip(tasks, kept, strict=True)]

    def play(self, metrics: Sequence[Metric]) -> list[State | None]:
        """All of it; returns what the clients keep."""
        with torch.no_grad(), blaming("the model"):
            self._features()
        with blaming("the method"):
            with torch.enable_grad():
                row = self._train()
            with torch.no_grad():
                states = self._finish(row)
        if self.compare.padded:
            with torch.no_grad():
                with blaming("the method"):
                    self._exchange()
                    if self.problem.method.own.logits is not None:
                        self._measure("the own", [DataPass("prediction", _prediction)])
                with blaming("a metric"):
                    self._measure("the metric", [each for metric in metrics for each in metric.passes])
                    self._observe(tuple(each for metric in metrics for each in metric.local), row)
        return states

    def _features(self) -> None:
        """The model by itself, so that methods are not blamed for it."""
        numbers = [number for number, phase in enumerate(self.together.task.phases) if phase]
        for training in (True, False) if numbers else ():
            batch, *own = (each.task.phases[numbers[0]][0] for each in (self.together, *self.alone))
            inputs, _ = gather(self.problem.samples, batch.indices, batch.draws)
            many, network, buffers = self.passes.many, self.problem.network, tree_clone(self.together.buffers)
            body = many.complete(self.together, self.together.anchor)
            found, _ = many.features(body, buffers, inputs, batch.mask, training=training)
            for place, each in enumerate(self.alone):
                inputs, _ = self.problem.samples.batch(own[place].indices, own[place].draws)
                body = network.complete(each.anchor, each.fixed)
                expected = network.features(body, tree_clone(each.buffers), inputs, training=training)
                self.compare.features(found[place, : len(expected)], expected)

    def _train(self) -> LocalModel:
        """Terms of every step, and what the steps made of the models."""
        trained = [train(self.problem, each) for each in self.alone]
        row, trace = train(self.problem, self.together, None, self.passes.many)
        self.compare.logged(trace, [steps for _, steps in trained])
        gradient = _gradient(self.problem.method)
        for found, (expected, _), each in zip(_apart(row), trained, self.alone, strict=True):
            self.compare.update(gradient, each.anchor, found.params, expected.params)
            self.compare.update("the statistics", each.buffers, found.buffers, expected.buffers)
            for name, own in expected.tracks.items():
                start, what = each.buffers | each.client[name], f"the client state '{name}'"
                self.compare.update(what, start, _tensors(found.tracks[name]), _tensors(own))
        return row

    def _finish(self, row: LocalModel) -> list[State | None]:
        """What clients send and keep, made from the same models both ways."""
        sums = self.problem.method.sums
        made = self._passes_of(sums, row)
        try:
            result = finish_group(self.problem, self.tasks, self.together, row, made)
            single = [
                finish(self.problem, each, own, StepLog(), passes)
                for each, own, passes in zip(self.alone, _apart(row), each_state(made, TWO), strict=True)
            ]
        except NonFinite:
            return [None, None]
        for name, tree in _added(each.sums for each in single).trees.items():
            self.compare.tree(f"the sum {name}", result.sums[name], tree)
        for each, state, expected in zip(self.alone, result.states, single, strict=True):
            for name, tree in expected.state.items():
                self.compare.tree(f"the client state '{name.lstrip('_')}'", state[name], tree)
            check_client_state(each.client, expected.state)
            check_client_state(each.client, state)
        return list(result.states)

    def _passes_of(self, sums: Sequence[Sum], row: LocalModel) -> dict[str, Tree]:
        """What clients add up over their data."""
        made = self.passes.of_sums(self.tasks, self.together, row.params, row.buffers, sums)
        for each, own, found in zip(self.alone, _apart(row), each_state(made, TWO), strict=True):
            for name, tree in client_passes(self.problem, each, own, sums).items():
                self.compare.tree(f"the pass {name}", found[name], tree)
        return made

    def _exchange(self) -> None:
        for exchange in self.problem.method.exchanges:
            made = self._passes_of(exchange.sums, LocalModel(self.together.anchor, self.together.buffers, {}))
            try:
                found, _ = collect_group(self.problem, self.tasks, self.together, exchange.sums, made)
                single = [
                    collect_client(self.problem, self.server, task, own, exchange.sums)
                    for task, own in zip(self.tasks, self.kept, strict=True)
                ]
            except NonFinite:
                continue
            for name, tree in _added(each.sums for each in single).trees.items():
                self.compare.tree(f"the sum {name}", found[name], tree)

    def _measure(self, what: str, measured: Sequence[DataPass]) -> None:
        """The clients' own models and predictions."""
        problem, counts = self.problem, self.together.task.counts[0]
        holders = [Holder(task.client, None, counts) for task in self.tasks]
        models = own_models(problem, self.server, holders, self.kept)
        totals = self.passes.run(measured, models, Data(problem.samples, [task.indices for task in self.tasks]))
        for task, own, each, found in zip(self.tasks, self.kept, self.alone, each_state(totals, TWO), strict=True):
            model = PassModel(
                *own_model(problem, self.server, own),
                counts=counts,
                server=self.server.extra,
                client=each.client,
                logits=problem.method.own.logits,
            )
            expected = run_passes(measured, problem.network, model, PassData(problem.samples, task.indices))
            for name, tree in expected.items():
                self.compare.tree(f"{what} {name}", found[name], tree)

    def _observe(self, sums: tuple[Sum, ...], row: LocalModel) -> None:
        """What metrics see of the trained clients."""
        diagnostics = DiagnosticRequest(sums, (), self.problem.samples, self.tasks[0].indices)
        try:
            found = Observer(self.passes, diagnostics, self.tasks).of_group(self.tasks, self.together, row).every
            single = [
                diagnose_client(self.problem, each, own, diagnostics, first=False).every
                for each, own in zip(self.alone, _apart(row), strict=True)
            ]
        except NonFinite:
            return
        for name, tree in _added(single).trees.items():
            self.compare.tree(f"the metric's sum {name}", found[name], tree)


def _prediction(view: StepView) -> Tree:
    """Logits of real samples, whatever a metric makes of them."""
    real = view.logits if view.mask is None else torch.where(view.mask[:, None] > 0, view.logits, 0)
    return {"logits": real.sum(0)}


def _gradient(method: Method) -> str:
    """What to call a gradient that differs although all values agree."""
    losses = [method.losses if phase.losses is None else phase.losses for phase in method.phases]
    given = dict.fromkeys(term.name for terms in losses for term in active(terms) if isinstance(term, GradientTerm))
    return f"the gradient term {' or '.join(given)}" if given else "the gradient"


def _added(sums: Iterable[Sums | None]) -> Sums:
    return sum((each for each in sums if each is not None), Sums())


def _tensors(row: LocalModel) -> Tree:
    return row.params | row.buffers


def _apart(row: LocalModel) -> list[LocalModel]:
    """Views of the rows of single clients."""
    params, buffers, momentum = (each_tree(tree, TWO) for tree in (row.params, row.buffers, row.momentum))
    tracks = {name: _apart(own) for name, own in row.tracks.items()}
    return [
        LocalModel(params[k], buffers[k], momentum[k], {name: own[k] for name, own in tracks.items()})
        for k in range(TWO)
    ]
