"""The one local loop: mini-batch SGD of one client on its method's terms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from fedblade.core.clients import Clients, Trace
from fedblade.core.gradient import clip_gradient
from fedblade.core.phase import Phase
from fedblade.core.plan import Batch
from fedblade.core.problem import LocalModel, Received
from fedblade.core.terms import StepGradient
from fedblade.core.tree import Tree, tree_clone, tree_select, tree_zeros
from fedblade.core.work import Rate, Work, prepare_phase

LOCAL_LOOP_REVISION = 0
"""Raised by one with every change of a client's trained model for the same batches, rounding aside.

Runs store it. A run of another revision is neither continued nor counted.
"""


def train(clients: Clients, received: Received, phases: Sequence[Phase] | None = None) -> tuple[LocalModel, Trace]:
    """Run the phases (None: the method's), each over the batches that were received.

    Momentum starts from zero in every phase that does not carry it on, unless the run keeps it between rounds.
    """
    problem = clients.problem
    chosen = problem.method.phases if phases is None else phases
    zero = tree_zeros(received.anchor)
    main = LocalModel(
        params=tree_clone(received.anchor),
        buffers=tree_clone(received.buffers),
        momentum=zero if received.momentum is None else zero | tree_clone(received.momentum),
    )
    main.tracks |= {phase.track: _track(received, phase.track) for phase in chosen if phase.track is not None}
    trace: Trace = []
    begun: set[str | None] = set()
    with _seeded_layers(received.seed, problem.samples.labels.device):
        for phase, batches in zip(chosen, received.batches, strict=True):
            model = main if phase.track is None else main.tracks[phase.track]
            if phase.track in begun and not (phase.carries_momentum or problem.settings.persist):
                model.momentum = tree_zeros(model.momentum)
            begun.add(phase.track)
            work = prepare_phase(problem, phase, model.params)
            trace.extend(
                _with_track_name(phase.track, entry) for entry in _steps(clients, received, model, work, batches)
            )
            if phase.track in problem.method.drafts:
                received = _with_draft(received, phase.track, model)
    for leaf in (leaf for model in (main, *main.tracks.values()) for leaf in model.params.values()):
        leaf.requires_grad_(False)
    main.tracks = {name: model for name, model in main.tracks.items() if name not in problem.method.drafts}
    return main, trace


def _with_track_name(track: str | None, entry: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """A step's log. Numbers of a model in the client's state carry the name of that state; counters do not."""
    if track is None:
        return entry
    return {name if name.startswith("count_") else f"{track}_{name}": value for name, value in entry.items()}


def _track(received: Received, name: str) -> LocalModel:
    """The model in a client's state, ready to train. A draft is in no state and starts as the received model."""
    state = received.client.get(name, received.anchor)
    params = tree_clone(tree_select(state, received.anchor))
    buffers = tree_clone(received.buffers | tree_select(state, received.buffers))
    return LocalModel(params, buffers, tree_zeros(params))


def _with_draft(received: Received, name: str, model: LocalModel) -> Received:
    """What later phases see: the client's state with the trained draft in it."""
    trained = {leaf: tensor.detach() for leaf, tensor in (model.params | model.buffers).items()}
    return replace(received, client={**received.client, name: trained})


@contextmanager
def _seeded_layers(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for the layers of one client, such as dropout, and restore them afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":
            # `torch.manual_seed` would also seed devices that do not train, which takes a millisecond.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield


def _steps(
    clients: Clients, received: Received, model: LocalModel, work: Work, batches: Sequence[Batch]
) -> Iterator[Mapping[str, torch.Tensor]]:
    """Take a step on every batch; yields what to log."""
    ready, size = None, -1
    for batch in batches:
        if ready is None or len(batch.indices) != size:
            # With fewer clients than before, if there is a client axis.
            ready, size = _Ready.of(clients, received, model, work, batch), len(batch.indices)
        yield ready.step(batch)


def step(
    clients: Clients, received: Received, model: LocalModel, work: Work, batch: Batch
) -> Mapping[str, torch.Tensor]:
    """Forward, backward and one SGD update of the trained parameters in place; returns what to log."""
    return _Ready.of(clients, received, model, work, batch).step(batch)


@dataclass(frozen=True)
class _Ready:
    """The clients of a batch, ready for steps: all that is the same in each of their steps.

    `groups` has the tensors of each group of optimiser settings: its names, its parameters and their momentum.
    """

    clients: Clients
    params: Tree
    lr: float | torch.Tensor
    gradient: Callable[[Batch], StepGradient]
    groups: tuple[tuple[Rate, Sequence[str], list[torch.Tensor], list[torch.Tensor]], ...]

    @staticmethod
    def of(clients: Clients, received: Received, model: LocalModel, work: Work, batch: Batch) -> "_Ready":
        """The clients that take part in a batch; marks the parameters that train."""
        received, model = clients.taking_part(received, model, batch)
        for name, leaf in model.params.items():
            leaf.requires_grad_(name in work.trained)
        groups = tuple(
            (sgd, names, [model.params[name] for name in names], [model.momentum[name] for name in names])
            for names, sgd in work.rates
        )
        return _Ready(clients, model.params, received.lr, clients.gradients(received, work, model), groups)

    def step(self, batch: Batch) -> Mapping[str, torch.Tensor]:
        """One step in place; returns what to log."""
        result, problem = self.gradient(batch), self.clients.problem
        with torch.no_grad():
            clip = problem.settings.clip
            gradient = result.gradient if clip is None else clip_gradient(self.clients, result.gradient, clip)
            for sgd, names, weights, momentum in self.groups:
                _update(
                    weights, [gradient[name] for name in names], momentum, sgd, self.lr if sgd.lr is None else sgd.lr
                )
            bounded = problem.network.head.constrain(self.params)
        return {f"loss_{name}": value for name, value in result.values.items()} | dict(result.logs) | bounded


def _update(
    weights: list[torch.Tensor],
    gradients: list[torch.Tensor],
    momentum: list[torch.Tensor],
    sgd: Rate,
    lr: float | torch.Tensor,
) -> None:
    """SGD as PyTorch defines it: g ← g + wd·w, buf ← mom·buf + g, w ← w − lr·buf.

    A learning rate that is a tensor can change between replays of a captured step; it costs one more pass over the
    weights.
    """
    if weights and weights[0].is_cuda and weights[0].dtype == torch.float32 and sgd.momentum:
        _update_in_one_kernel(weights, gradients, momentum, sgd, lr)
        return
    if sgd.weight_decay:
        gradients = list(torch._foreach_add(gradients, weights, alpha=sgd.weight_decay))
    torch._foreach_mul_(momentum, sgd.momentum)
    torch._foreach_add_(momentum, gradients)
    if isinstance(lr, torch.Tensor):
        torch._foreach_sub_(weights, torch._foreach_mul(momentum, lr))
    else:
        torch._foreach_add_(weights, momentum, alpha=-lr)


def _update_in_one_kernel(
    weights: list[torch.Tensor],
    gradients: list[torch.Tensor],
    buffers: list[torch.Tensor],
    rate: Rate,
    lr: float | torch.Tensor,
) -> None:
    """The same update in one kernel for all tensors of a GPU. The kernel needs gradients with the weights' strides."""
    gradients = [_with_strides_of(weight, gradient) for gradient, weight in zip(gradients, weights, strict=True)]
    torch._fused_sgd_(
        weights, gradients, buffers, weight_decay=rate.weight_decay, momentum=rate.momentum, lr=lr, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip


def _with_strides_of(weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient with the strides of its weight, copied only where the order in memory differs.

    Where an axis has length one, its stride has no effect: such gradients get the weight's strides without a copy.
    """
    if gradient.stride() == weight.stride():
        return gradient
    if weight.is_contiguous():
        return gradient.contiguous().as_strided(weight.shape, weight.stride())
    return torch.empty_like(weight).copy_(gradient)
