"""A check that a method, a model and metrics give the same numbers with clients side by side as one by one.

The check takes two small clients with a few real samples. It trains them for two steps of every phase, ends the round,
runs exchanges and measurements, and compares everything with the same clients one by one. Code that cannot run side by
side raises an error, and code that takes padding for samples gives other numbers. In the first round all batches have
one length, for which engines have code of its own. In the second round the clients have the states they kept, and the
batches of one client are padded.
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
from fedblade.core.problem import LocalModel, personal_model, receive
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.terms import GradientTerm, active
from fedblade.core.tree import State, Tree, tree_clone
from fedblade.core.views import StepView
from fedblade.engines._chunks import GroupData
from fedblade.engines._conformance_check_compare import Comparison, blaming, check_client_state, shorten
from fedblade.engines._group import receive_group, split_state, split_tree, with_batches
from fedblade.engines._group_finish import collect_group, finish_group
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._many_clients import gather
from fedblade.engines._observer import Observer
from fedblade.engines._personal_models import personal_models
from fedblade.engines.base import MeasuredClient

NUM_CLIENTS = 2
RATE = 0.05
"""The learning rate: large enough for the second step to see another model, too small to enlarge rounding errors."""


def check_conformance(passes: GroupPasses, server: ServerState, task: ClientTask, metrics: Sequence[Metric]) -> None:
    """Raise `Unsupported` if the method, the model or a metric fails side by side or gives other numbers.

    Both clients get samples of `task`. The check changes no state of the run.
    """
    problem = passes.many.problem
    device, least = problem.samples.labels.device, 2 if problem.network.skips_singletons else 1
    states: list[State | None] = [None] * NUM_CLIENTS
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.inference_mode(False):
        for padded in (False, True):
            tasks = [shorten(task, least, 1.0), shorten(task, least, 2 / 3 if padded else 1.0, last=True)]
            states = _Round(passes, server, tasks, states, padded=padded).check(metrics)


class _Round:
    """A round of two clients, side by side (`group`) and one by one (`single`)."""

    def __init__(
        self,
        passes: GroupPasses,
        server: ServerState,
        tasks: Sequence[ClientTask],
        states: Sequence[State | None],
        *,
        padded: bool,
    ) -> None:
        self.passes, self.server, self.tasks, self.states = passes, server, tasks, states
        self.problem = passes.many.problem
        self.compare = Comparison.of(self.problem, padded=padded)
        with blaming("the method"):
            self.group = with_batches(receive_group(self.problem, server, tasks, states, RATE), tasks)
            pairs = zip(tasks, states, strict=True)
            self.single = [receive(self.problem, server, task, state, RATE) for task, state in pairs]

    def check(self, metrics: Sequence[Metric]) -> list[State | None]:
        """Compare all parts of the round; returns the states that the clients keep."""
        with torch.no_grad(), blaming("the model"):
            self._check_features()
        with blaming("the method"):
            with torch.enable_grad():
                model = self._check_training()
            with torch.no_grad():
                states = self._check_end(model)
        if self.compare.padded:
            with torch.no_grad():
                with blaming("the method"):
                    self._check_exchanges()
                    if self.problem.method.own.logits is not None:
                        self._check_personal_models("the personal", [DataPass("prediction", _prediction)])
                with blaming("a metric"):
                    self._check_personal_models("the metric", [each for metric in metrics for each in metric.passes])
                    self._check_diagnostics(tuple(each for metric in metrics for each in metric.local), model)
        return states

    def _check_features(self) -> None:
        """The model by itself, so that its faults are not blamed on the method."""
        numbers = [number for number, phase in enumerate(self.group.task.phases) if phase]
        for training in (True, False) if numbers else ():
            batch, *batches = (received.task.phases[numbers[0]][0] for received in (self.group, *self.single))
            inputs, _ = gather(self.problem.samples, batch.indices, batch.draws)
            many, network, buffers = self.passes.many, self.problem.network, tree_clone(self.group.buffers)
            body = many.complete(self.group, self.group.anchor)
            features, _ = many.features(body, buffers, inputs, batch.mask, training=training)
            for client, received in enumerate(self.single):
                inputs, _ = self.problem.samples.batch(batches[client].indices, batches[client].draws)
                body = network.complete(received.anchor, received.fixed)
                expected = network.features(body, tree_clone(received.buffers), inputs, training=training)
                self.compare.features(features[client, : len(expected)], expected)

    def _check_training(self) -> LocalModel:
        """The terms of every step, and the models after training."""
        trained = [train(self.problem, received) for received in self.single]
        model, trace = train(self.problem, self.group, None, self.passes.many)
        self.compare.logged(trace, [steps for _, steps in trained])
        gradient = _gradient(self.problem.method)
        for made, (expected, _), received in zip(_split_model(model), trained, self.single, strict=True):
            self.compare.update(gradient, received.anchor, made.params, expected.params)
            self.compare.update("the statistics", received.buffers, made.buffers, expected.buffers)
            for name, track in expected.tracks.items():
                start, what = received.buffers | received.client[name], f"the client state '{name}'"
                self.compare.update(what, start, _tensors(made.tracks[name]), _tensors(track))
        return model

    def _check_end(self, model: LocalModel) -> list[State | None]:
        """The sums and states of the clients, made from the same models both ways."""
        totals = self._check_passes(self.problem.method.sums, model)
        try:
            result = finish_group(self.problem, self.tasks, self.group, model, totals)
            clients = zip(self.single, _split_model(model), split_state(totals, NUM_CLIENTS), strict=True)
            single = [
                finish(self.problem, received, own, StepLog(), own_totals) for received, own, own_totals in clients
            ]
        except NonFinite:
            return [None] * NUM_CLIENTS
        self._compare_sums("the sum", result.sums, (of_client.sums for of_client in single))
        for received, state, expected in zip(self.single, result.states, single, strict=True):
            for name, tree in expected.state.items():
                self.compare.tree(f"the client state '{name.lstrip('_')}'", state[name], tree)
            check_client_state(received.client, expected.state)
            check_client_state(received.client, state)
        return list(result.states)

    def _check_passes(self, sums: Sequence[Sum], model: LocalModel) -> dict[str, Tree]:
        """Totals of the passes over the clients' data; returns the totals of the group."""
        totals = self.passes.run_for_sums(self.tasks, self.group, model, sums)
        clients = zip(self.single, _split_model(model), split_state(totals, NUM_CLIENTS), strict=True)
        for received, own, own_totals in clients:
            for name, tree in client_passes(self.problem, received, own, sums).items():
                self.compare.tree(f"the pass {name}", own_totals[name], tree)
        return totals

    def _check_exchanges(self) -> None:
        for exchange in self.problem.method.exchanges:
            totals = self._check_passes(exchange.sums, LocalModel(self.group.anchor, self.group.buffers, {}))
            try:
                made, _ = collect_group(self.problem, self.tasks, self.group, exchange.sums, totals)
                single = [
                    collect_client(self.problem, self.server, task, state, exchange.sums)
                    for task, state in zip(self.tasks, self.states, strict=True)
                ]
            except NonFinite:
                continue
            self._compare_sums("the sum", made, (of_client.sums for of_client in single))

    def _check_personal_models(self, what: str, passes: Sequence[DataPass]) -> None:
        """Passes with the clients' personal models and predictions."""
        problem, counts = self.problem, self.group.task.counts[0]
        clients = [MeasuredClient(task.client, None, counts) for task in self.tasks]
        models = personal_models(problem, self.server, clients, self.states)
        totals = self.passes.run(passes, models, GroupData(problem.samples, [task.indices for task in self.tasks]))
        by_client = zip(self.tasks, self.states, self.single, split_state(totals, NUM_CLIENTS), strict=True)
        for task, state, received, own_totals in by_client:
            model = PassModel(
                *personal_model(problem, self.server, state),
                counts=counts,
                server=self.server.extra,
                client=received.client,
                logits=problem.method.own.logits,
            )
            expected = run_passes(passes, problem.network, model, PassData(problem.samples, task.indices))
            for name, tree in expected.items():
                self.compare.tree(f"{what} {name}", own_totals[name], tree)

    def _check_diagnostics(self, sums: tuple[Sum, ...], model: LocalModel) -> None:
        """What metrics see of the trained clients."""
        diagnostics = DiagnosticRequest(sums, (), self.problem.samples, self.tasks[0].indices)
        try:
            made = Observer(self.passes, diagnostics, self.tasks).observe(self.tasks, self.group, model).every
            single = [
                diagnose_client(self.problem, received, own, diagnostics, first=False).every
                for received, own in zip(self.single, _split_model(model), strict=True)
            ]
        except NonFinite:
            return
        self._compare_sums("the metric's sum", made, single)

    def _compare_sums(self, what: str, made: Sums, single: Iterable[Sums | None]) -> None:
        """The group's sums against the sums of single clients, added up."""
        expected = sum((of_client for of_client in single if of_client is not None), Sums())
        for name, tree in expected.trees.items():
            self.compare.tree(f"{what} {name}", made[name], tree)


def _prediction(view: StepView) -> Tree:
    """The logits of real samples: what every metric is made from."""
    real = view.logits if view.mask is None else torch.where(view.mask[:, None] > 0, view.logits, 0)
    return {"logits": real.sum(0)}


def _gradient(method: Method) -> str:
    """The words for a gradient that differs although all values agree."""
    losses = [method.losses if phase.losses is None else phase.losses for phase in method.phases]
    names = dict.fromkeys(term.name for terms in losses for term in active(terms) if isinstance(term, GradientTerm))
    return f"the gradient term {' or '.join(names)}" if names else "the gradient"


def _tensors(model: LocalModel) -> Tree:
    return model.params | model.buffers


def _split_model(model: LocalModel) -> list[LocalModel]:
    """The models of single clients, as views."""
    params, buffers, momentum = (
        split_tree(tree, NUM_CLIENTS) for tree in (model.params, model.buffers, model.momentum)
    )
    tracks = {name: _split_model(track) for name, track in model.tracks.items()}
    return [
        LocalModel(params[k], buffers[k], momentum[k], {name: track[k] for name, track in tracks.items()})
        for k in range(NUM_CLIENTS)
    ]
