"""A check that a method, a model and metrics give the same numbers with clients side by side as one by one.

The check takes two small clients with a few real samples. It trains them for two steps of every phase, ends the round,
runs exchanges and measurements, and compares everything with the same clients one by one. Code that cannot run side by
side raises an error, and code that takes padding for samples gives other numbers. In the first round all batches have
one length, for which engines have code of its own. In the second round the clients have the states they kept, and the
batches of one client are padded.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedblade.core.client_diagnostics import DiagnosticRequest, diagnose
from fedblade.core.clients import Clients
from fedblade.core.end import Ended
from fedblade.core.errors import NonFinite
from fedblade.core.local import train
from fedblade.core.method import Method
from fedblade.core.metric import Metric
from fedblade.core.one_client import OneClient
from fedblade.core.outcome import StepLog, finish
from fedblade.core.passes import PassData
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.receive import personal_models, receive_clients, with_batches
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass, Sum, Sums
from fedblade.core.terms import GradientTerm, active
from fedblade.core.tree import State, Tree, state_split, tree_clone, tree_split
from fedblade.core.views import StepView
from fedblade.engines._conformance_check_compare import Comparison, blaming, check_client_state, shorten

NUM_CLIENTS = 2
RATE = 0.05
"""The learning rate: large enough for the second step to see another model, too small to enlarge rounding errors."""


def check_conformance(clients: Clients, server: ServerState, task: ClientTask, metrics: Sequence[Metric]) -> None:
    """Raise `Unsupported` if the method, the model or a metric fails side by side or gives other numbers.

    Both clients get samples of `task`. The check changes no state of the run.
    """
    problem = clients.problem
    device, least = problem.samples.labels.device, 2 if problem.network.skips_singletons else 1
    states: list[State | None] = [None] * NUM_CLIENTS
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.inference_mode(False):
        for padded in (False, True):
            tasks = [shorten(task, least, 1.0), shorten(task, least, 2 / 3 if padded else 1.0, last=True)]
            states = _Round(clients, server, tasks, states, padded=padded).check(metrics)


class _Round:
    """A round of two clients, side by side (`group`) and one by one (`single`)."""

    def __init__(
        self,
        clients: Clients,
        server: ServerState,
        tasks: Sequence[ClientTask],
        states: Sequence[State | None],
        *,
        padded: bool,
    ) -> None:
        self.problem, self.server, self.tasks, self.states = clients.problem, server, tasks, states
        self.clients, self.alone = clients, OneClient(clients.problem)
        self.compare = Comparison.of(self.problem, padded=padded)
        with blaming("the method"):
            self.group = self._receive(clients, tasks, states)
            pairs = zip(tasks, states, strict=True)
            self.single = [self._receive(self.alone, [task], [state]) for task, state in pairs]

    def _receive(self, clients: Clients, tasks: Sequence[ClientTask], states: Sequence[State | None]) -> Received:
        return with_batches(clients, receive_clients(clients, self.server, tasks, states, RATE), tasks)

    def _ended(self, model: LocalModel) -> tuple[Ended, list[Ended]]:
        """The clients after their local work, side by side and one by one, with the same models."""
        group = Ended(self.clients, self.tasks, self.group, model)
        parts = zip(self.tasks, self.single, _split_model(model), strict=True)
        return group, [Ended(self.alone, [task], received, own) for task, received, own in parts]

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
                    self._check_personal_models(
                        "the metric", [data_pass for metric in metrics for data_pass in metric.passes]
                    )
                    self._check_diagnostics(tuple(sum_ for metric in metrics for sum_ in metric.local), model)
        return states

    def _check_features(self) -> None:
        """The model by itself, so that its faults are not blamed on the method."""
        numbers = [number for number, phase in enumerate(self.group.batches) if phase]
        for training in (True, False) if numbers else ():
            features = self._features(self.clients, self.group, numbers[0], training=training)
            for client, received in enumerate(self.single):
                expected = self._features(self.alone, received, numbers[0], training=training)
                self.compare.features(features[client, : len(expected)], expected)

    def _features(self, clients: Clients, received: Received, phase: int, *, training: bool) -> Tensor:
        """Features of the first batch of a phase with the received model."""
        batch = received.batches[phase][0]
        # Copies: training changes statistics, and shared parameters would not reach the stacked layers.
        params, buffers = tree_clone(received.anchor), tree_clone(received.buffers)
        inputs, _ = clients.read(self.problem.samples, batch.indices, batch.draws)
        features, _ = clients.features(params, received.fixed, buffers, inputs, batch.mask, training=training)
        return features

    def _check_training(self) -> LocalModel:
        """The terms of every step, and the models after training."""
        trained = [train(self.alone, received) for received in self.single]
        model, trace = train(self.clients, self.group)
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
        group, single = self._ended(model)
        totals = self._check_passes(self.problem.method.sums, group, single)
        try:
            result = finish(group, totals, StepLog())
            expected = [
                finish(ended, own_totals, StepLog())
                for ended, own_totals in zip(single, state_split(totals, NUM_CLIENTS), strict=True)
            ]
        except NonFinite:
            return [None] * NUM_CLIENTS
        self._compare_sums("the sum", result.sums, (of_client.sums for of_client in expected))
        for received, state, of_client in zip(self.single, result.states, expected, strict=True):
            for name, tree in of_client.states[0].items():
                self.compare.tree(f"the client state '{name.lstrip('_')}'", state[name], tree)
            check_client_state(received.client, of_client.states[0])
            check_client_state(received.client, state)
        return list(result.states)

    def _check_passes(self, sums: Sequence[Sum], group: Ended, single: Sequence[Ended]) -> dict[str, Tree]:
        """Totals of the passes over the clients' data; returns the totals of the group."""
        totals = group.passes(sums)
        for ended, own_totals in zip(single, state_split(totals, NUM_CLIENTS), strict=True):
            for name, tree in ended.passes(sums).items():
                self.compare.tree(f"the pass {name}", own_totals[name], tree)
        return totals

    def _check_exchanges(self) -> None:
        for exchange in self.problem.method.exchanges:
            group, single = self._ended(LocalModel(self.group.anchor, self.group.buffers, {}))
            totals = self._check_passes(exchange.sums, group, single)
            try:
                made = group.sums(exchange.sums, totals)
                expected = [ended.sums(exchange.sums, ended.passes(exchange.sums)) for ended in single]
            except NonFinite:
                continue
            self._compare_sums("the sum", made, expected)

    def _check_personal_models(self, what: str, passes: Sequence[DataPass]) -> None:
        """Passes with the clients' personal models and predictions."""
        counts, indices = self.group.counts[0], [task.indices for task in self.tasks]

        def totals(clients: Clients, chosen: slice) -> list[State]:
            states = self.states[chosen]
            models = personal_models(clients, self.server, [counts] * len(states), states)
            made = clients.run_passes(passes, models, PassData(self.problem.samples, indices[chosen]))
            return state_split(clients.with_axis(made), len(states))

        for client, made in enumerate(totals(self.clients, slice(NUM_CLIENTS))):
            (expected,) = totals(self.alone, slice(client, client + 1))
            for name, tree in expected.items():
                self.compare.tree(f"{what} {name}", made[name], tree)

    def _check_diagnostics(self, sums: tuple[Sum, ...], model: LocalModel) -> None:
        """What metrics see of the trained clients."""
        diagnostics = DiagnosticRequest(sums, (), self.problem.samples, self.tasks[0].indices)
        group, single = self._ended(model)
        try:
            made = diagnose(group, diagnostics, None).every
            expected = [diagnose(ended, diagnostics, None).every for ended in single]
        except NonFinite:
            return
        self._compare_sums("the metric's sum", made, expected)

    def _compare_sums(self, what: str, made: Sums, single: Iterable[Sums]) -> None:
        """The group's sums against the sums of single clients, added up."""
        expected = sum(single, Sums())
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
        tree_split(tree, NUM_CLIENTS) for tree in (model.params, model.buffers, model.momentum)
    )
    tracks = {name: _split_model(track) for name, track in model.tracks.items()}
    return [
        LocalModel(params[k], buffers[k], momentum[k], {name: track[k] for name, track in tracks.items()})
        for k in range(NUM_CLIENTS)
    ]
