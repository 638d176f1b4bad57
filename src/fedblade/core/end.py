"""Clients after their local work: what they send, the state they keep, and the size of their uploads."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedblade.core.clients import Clients, Fields
from fedblade.core.finite import refuse_non_finite_state, refuse_non_finite_sums
from fedblade.core.passes import PassData, PassModel, passes_of
from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import BUFFERS, MOMENTUM, PERSONAL, LocalModel, Problem, Received
from fedblade.core.sums import Sum, Sums, contributions, payload_bytes
from fedblade.core.tree import State, Tree, state_split, tree_map, tree_select
from fedblade.core.views import EndView


@dataclass(frozen=True)
class Ended:
    """Clients after their local work: their tasks, what they received, and the models they have now."""

    clients: Clients
    tasks: Sequence[ClientTask]
    received: Received
    model: LocalModel

    @torch.no_grad()
    def map(self, function: Callable[[EndView], Any], passes: Mapping[str, Tree], phases: Sequence[Phase]) -> Any:
        """The value of `function` at the view of each client after `phases`."""
        problem, received, model = self.clients.problem, self.received, self.model

        def one(client: Fields) -> Any:
            view = EndView(
                head=problem.network.head,
                lr=float(received.lr),
                population=problem.start.population,
                shared=problem.uploaded,
                round=received.round,
                server=received.server,
                **client,
            )
            return function(view)

        numbers = self.clients.numbers([client_numbers(problem, task, phases) for task in self.tasks])
        fields: Fields = {"params": model.params, "buffers": model.buffers, "anchor": received.anchor}
        fields |= {"fixed": received.fixed, "counts": received.counts, "client": received.client, "passes": passes}
        return self.clients.map(one, {**fields, **numbers})

    def passes(self, sums: Sequence[Sum]) -> dict[str, Tree]:
        """Totals of the passes that the sums need over each client's training data; augmented passes run apart."""
        samples, models = self.clients.problem.samples, PassModel.of_clients(self.received, self.model)
        totals: dict[str, Tree] = {}
        for augmented in (False, True):
            passes = [data_pass for data_pass in passes_of(sums) if data_pass.augmented == augmented]
            if passes:
                # Drawn here only: most methods need no pass.
                indices = [task.indices for task in self.tasks]
                draws = [task.pass_draws for task in self.tasks] if augmented else None
                totals |= self.clients.run_passes(passes, models, PassData(samples, indices, draws))
        return totals

    def sums(self, declared: Sequence[Sum], passes: Mapping[str, Tree]) -> Sums:
        """What the clients add to sums, added up."""
        phases = self.clients.problem.method.phases
        sent = self.map(lambda view: contributions(declared, view), passes, phases)
        return self.add_up(declared, sent)

    def add_up(self, declared: Sequence[Sum], contributed: Mapping[str, Tree], kept: State | None = None) -> Sums:
        """The contributions of the clients added up; NaN and infinity, in the states they keep too, raise an error."""
        sent, states = self.clients.with_axis(contributed), self.clients.with_axis(kept or {})
        sums = Sums.over(declared, sent)
        # The maximum may hide a number that is not finite.
        maxima = [sent[sum_.name] for sum_ in declared if sum_.reduce == "max"]
        if not _is_finite(*sums.trees.values(), *maxima, *states.values()):
            self._refuse_non_finite(sent, states)
        return sums

    def keep(self, updated: State, shared: frozenset[str]) -> State:
        """The state that clients keep: the method's state as `updated`, and the model's tensors not in `shared`."""
        problem, model = self.clients.problem, self.model
        state = self.received.client | updated
        state |= {name: track.params | track.buffers for name, track in model.tracks.items()}
        kept_params = {name: leaf for name, leaf in model.params.items() if name not in shared}
        if kept_params:
            state[PERSONAL] = kept_params
        kept_buffers = tree_select(model.buffers, problem.network.buffer_names - shared)
        if kept_buffers:
            state[BUFFERS] = kept_buffers
        if problem.settings.persist:
            state[MOMENTUM] = model.momentum
        return state

    def split(self, state: State) -> list[State]:
        """The states of the single clients, as views."""
        return state_split(self.clients.with_axis(state), len(self.tasks))

    def bytes_up(self, declared: Sequence[Sum], sums: Sums) -> int:
        """Bytes of all uploads: clients that hold equally many classes send equally much."""
        apart = [sum_.name for sum_ in declared if sum_.reduce == "each"]
        of_one_client = {name: tree_map(lambda leaf: leaf[:1], sums[name]) for name in apart}
        payload = Sums({**sums.trees, **of_one_client})
        width = torch.finfo(self.clients.problem.samples.dtype).bits // 8
        num_clients = Counter(int((task.counts > 0).sum()) for task in self.tasks)
        return sum(clients * payload_bytes(declared, payload, held, width) for held, clients in num_clients.items())

    def _refuse_non_finite(self, sent: Mapping[str, Tree], state: Mapping[str, Tree]) -> None:
        """Name the first client by id that sends or would keep a number which is not finite."""
        payloads, states = state_split(sent, len(self.tasks)), state_split(state, len(self.tasks))
        for position, task in sorted(enumerate(self.tasks), key=lambda numbered: numbered[1].client):
            refuse_non_finite_sums(payloads[position], task.client, task.round)
            refuse_non_finite_state(states[position], task)


def _is_finite(*trees: Tree) -> bool:
    """Whether no number is NaN or infinite, seen from totals; a total that overflows gives False as well."""
    totals = [leaf.sum(dtype=torch.float64) for tree in trees for leaf in tree.values() if leaf.is_floating_point()]
    return not totals or bool(torch.stack(totals).isfinite().all())


def updates(problem: Problem, view: EndView) -> State:
    """The client state that the method changes at the end of a round."""
    return {name: update(view) for name, update in problem.method.client_update.items()}


def effective_steps(steps: int, momentum: float) -> float:
    """Steps, weighted by the effect of momentum: [τ − ρ(1−ρ^τ)/(1−ρ)]/(1−ρ), FedNova's a_k."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def total_effective_steps(trained: Sequence[tuple[int, float]]) -> float:
    """The effective steps of all phases; `trained` has the steps and the momentum of each."""
    return sum(effective_steps(steps, momentum) for steps, momentum in trained)


def client_numbers(problem: Problem, task: ClientTask, phases: Sequence[Phase]) -> dict[str, float]:
    """The fields of an `EndView` that are numbers of the client."""
    trained = trained_phases(problem, [len(batches) for batches in task.phases], phases)
    return {
        "num_samples": task.num_samples,
        "num_steps": sum(steps for steps, _ in trained),
        "effective_steps": total_effective_steps(trained),
        "weight": task.weight,
        "erased": -1 if task.erased is None else task.erased,
    }


def trained_phases(problem: Problem, steps: Sequence[int], phases: Sequence[Phase]) -> list[tuple[int, float]]:
    """Steps and momentum of each phase that trains the received model; momentum starts from zero in each.

    `steps` are the steps of all phases.
    """
    usual = problem.settings.momentum
    return [
        (count, usual if phase.sgd.momentum is None else phase.sgd.momentum)
        for phase, count in zip(phases, steps, strict=True)
        if phase.track is None
    ]
