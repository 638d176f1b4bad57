"""A client after its local work: the view for its sums, the state it keeps, and the size of its upload."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedblade.core.phase import Phase
from fedblade.core.plan import ClientTask
from fedblade.core.problem import BUFFERS, MOMENTUM, PERSONAL, LocalModel, Problem, Received
from fedblade.core.tree import State, Tree, tree_select
from fedblade.core.views import EndView


def effective_steps(steps: int, momentum: float) -> float:
    """Steps, weighted by the effect of momentum: [τ − ρ(1−ρ^τ)/(1−ρ)]/(1−ρ), FedNova's a_k."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def client_numbers(problem: Problem, task: ClientTask, phases: Sequence[Phase]) -> dict[str, float]:
    """The fields of an `EndView` that are numbers of the client."""
    trained = _trained_phases(problem, task, phases)
    return {
        "num_samples": task.num_samples,
        "num_steps": sum(steps for steps, _ in trained),
        "effective_steps": sum(effective_steps(steps, momentum) for steps, momentum in trained),
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
    """A client after its local work, or several clients with a client axis in all tensors that differ between them."""
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


def _trained_phases(problem: Problem, task: ClientTask, phases: Sequence[Phase]) -> list[tuple[int, float]]:
    """Steps and momentum of each phase that trains the received model; momentum counts as started anew in each."""
    usual = problem.settings.momentum
    return [
        (len(batches), usual if phase.sgd.momentum is None else phase.sgd.momentum)
        for phase, batches in zip(phases, task.phases, strict=True)
        if phase.track is None
    ]


def kept_state(
    problem: Problem, received: Received, model: LocalModel, updated: State, shared: frozenset[str]
) -> State:
    """The state that a client keeps: the method's state as `updated`, and the tensors of the model not in `shared`."""
    state = received.client | updated
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


def held_classes(task: ClientTask) -> int:
    """The number of classes that a client has samples of."""
    return int((task.counts > 0).sum())


def float_bytes(problem: Problem) -> int:
    """Bytes of one number in an upload."""
    return torch.finfo(problem.samples.dtype).bits // 8
