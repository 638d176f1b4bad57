"""A client after its local work: what its sums see, what it keeps, and how much it sends."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import BUFFERS, MOMENTUM, PERSONAL, LocalModel, Problem, Received
from fedblade.core.tree import State, Tree, tree_select
from fedblade.core.views import EndView


def effective_steps(steps: int, momentum: float) -> float:
    """Steps weighted by what momentum makes of them: [τ − ρ(1−ρ^τ)/(1−ρ)]/(1−ρ), FedNova's a_k."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def client_numbers(problem: Problem, task: ClientTask, phases: Sequence[Phase]) -> dict[str, float]:
    """What an `EndView` says of a client in numbers."""
    stretches = _stretches(problem, task, phases)
    return {
        "num_samples": task.num_samples,
        "num_steps": sum(steps for steps, _ in stretches),
        "effective_steps": sum(effective_steps(steps, momentum) for steps, momentum in stretches),
        "weight": task.weight,
        "erased": -1 if task.erased is None else task.erased,
    }


def end_view(
    problem: Problem,
    received: Received,
    model: LocalModel,
    passes: Mapping[str, Tree],
    numbers: Mapping[str, float] | Mapping[str, Tensor],
) -> EndView:
    """A client after its local work, or several with a client axis in all that is theirs."""
    return EndView(
        params=model.params,
        buffers=model.buffers,
        anchor=received.anchor,
        fixed=received.fixed,
        head=problem.network.head,
        counts=received.task.counts,
        lr=float(received.lr),
        population=problem.start.population,
        shared=problem.uploaded,
        round=received.task.round,
        server=received.server,
        client=received.client,
        passes=passes,
        **numbers,
    )


def updates(problem: Problem, view: EndView) -> State:
    """The client state that the method changes at the end of a round."""
    return {name: update(view) for name, update in problem.method.client_update.items()}


def _stretches(problem: Problem, task: ClientTask, phases: Sequence[Phase]) -> list[tuple[int, float]]:
    """Steps and momentum of the phases that train the received model, counted as if momentum started anew in each."""
    usual = problem.settings.momentum
    return [
        (len(batches), usual if phase.sgd.momentum is None else phase.sgd.momentum)
        for phase, batches in zip(phases, task.phases, strict=True)
        if phase.track is None
    ]


def kept_state(
    problem: Problem, received: Received, model: LocalModel, updated: State, shared: frozenset[str]
) -> State:
    """What a client keeps: the method's state as `updated`, and the parts of the model that are not `shared`."""
    state = received.client | updated
    state |= {name: own.params | own.buffers for name, own in model.tracks.items()}
    own_params = {name: leaf for name, leaf in model.params.items() if name not in shared}
    if own_params:
        state[PERSONAL] = own_params
    own_buffers = tree_select(model.buffers, problem.network.buffer_names - shared)
    if own_buffers:
        state[BUFFERS] = own_buffers
    if problem.settings.persist:
        state[MOMENTUM] = model.momentum
    return state


def held_classes(task: ClientTask) -> int:
    """Classes of which a client has samples."""
    return int((task.counts > 0).sum())


def float_bytes(problem: Problem) -> int:
    """Bytes of a number that travels."""
    return torch.finfo(problem.samples.dtype).bits // 8
