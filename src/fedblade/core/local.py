"""The one local loop: mini-batch SGD of one client on its method's terms."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from fedblade.core.gradient import GradientEngine, OneClient, Rate, Work, ahead, prepare
from fedblade.core.phase import Phase
from fedblade.core.plan import Batch
from fedblade.core.problem import Problem, Received
from fedblade.core.tree import Tree, tree_clone, tree_select, tree_zeros

LOCAL_LOOP_REVISION = 0
"""Raised by one with every change of what a client's training gives for the same batches, rounding aside.

Runs store it: one of another revision is neither continued nor counted.
"""
Trace = list[Mapping[str, torch.Tensor]]
"""What each step logged, in order; tensors stay on the device until the client has finished."""


@dataclass
class LocalModel:
    """The tensors of a model that a client changes while it trains; `tracks` are the models of its state beside it."""

    params: Tree
    buffers: Tree
    momentum: Tree
    tracks: dict[str, "LocalModel"] = field(default_factory=dict)

    def first(self, clients: int) -> "LocalModel":
        """Views of the first so many clients, where there is a client axis."""
        params, buffers, momentum = (
            {name: leaf[:clients] for name, leaf in tree.items()} for tree in (self.params, self.buffers, self.momentum)
        )
        return LocalModel(params, buffers, momentum)


def train(
    problem: Problem,
    received: Received,
    phases: Sequence[Phase] | None = None,
    gradient_engine: GradientEngine | None = None,
) -> tuple[LocalModel, Trace]:
    """Run the phases (None: the method's), each over its planned batches.

    Momentum starts from zero in every phase that does not carry it on, unless the run keeps it between participations.
    An engine that gives every tensor a client axis brings the `gradient_engine` for it; None is for one client.
    """
    gradient_engine = gradient_engine or OneClient(problem)
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
    with _own_randomness(received.task.seed, problem.samples.labels.device):
        for phase, batches in zip(chosen, received.task.phases, strict=True):
            row = main if phase.track is None else main.tracks[phase.track]
            if phase.track in begun and not (phase.carries_momentum or problem.settings.persist):
                row.momentum = tree_zeros(row.momentum)
            begun.add(phase.track)
            work = prepare(problem, phase, row.params)
            trace.extend(
                _named(phase.track, step(problem, gradient_engine, received, row, work, batch)) for batch in batches
            )
            if phase.track in problem.method.drafts:
                received = _with_draft(received, phase.track, row)
    for leaf in (leaf for row in (main, *main.tracks.values()) for leaf in row.params.values()):
        leaf.requires_grad_(False)
    main.tracks = {name: row for name, row in main.tracks.items() if name not in problem.method.drafts}
    return main, trace


def _named(track: str | None, entry: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """A step's log; what a model in the client's state logs carries the name of that state."""
    if track is None:
        return entry
    return {name if name.startswith("count_") else f"{track}_{name}": value for name, value in entry.items()}


def _track(received: Received, name: str) -> LocalModel:
    """The model in a client's state, ready to train; a draft, which is in none, starts as the received model."""
    state = received.client.get(name, received.anchor)
    params = tree_clone(tree_select(state, received.anchor))
    buffers = tree_clone(received.buffers | tree_select(state, received.buffers))
    return LocalModel(params, buffers, tree_zeros(params))


def _with_draft(received: Received, name: str, row: LocalModel) -> Received:
    """What later phases see: the draft as it has been trained."""
    trained = {leaf: tensor.detach() for leaf, tensor in (row.params | row.buffers).items()}
    return replace(received, client={**received.client, name: trained})


@contextmanager
def _own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, which dropout and its like draw from, for one client, and put them back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def step(
    problem: Problem, gradient_engine: GradientEngine, received: Received, row: LocalModel, work: Work, batch: Batch
) -> Mapping[str, torch.Tensor]:
    """Forward, backward and one SGD update of the trained parameters in place; returns what to log."""
    row = row if batch.indices.dim() == 1 else row.first(len(batch.indices))
    for name, leaf in row.params.items():
        leaf.requires_grad_(name in work.trained)
    look = work.phase.lookahead
    if look is None:
        result = gradient_engine.compute(received, work, work.terms, batch, row.params, row.buffers)
    else:
        result = ahead(gradient_engine, received, work, look, batch, row.params, row.buffers, row.momentum)
    with torch.no_grad():
        clip = problem.settings.clip
        gradient = result.gradient if clip is None else gradient_engine.clip(result.gradient, clip)
        _update(row, work, gradient, received.lr)
        bounded = problem.network.head.constrain(row.params)
    return {f"loss_{name}": value for name, value in result.values.items()} | dict(result.logs) | bounded


def _update(row: LocalModel, work: Work, gradient: Tree, lr: float | torch.Tensor) -> None:
    """SGD with PyTorch's semantics: g ← g + wd·w, buf ← mom·buf + g, w ← w − lr·buf.

    A rate that is a tensor can be changed under a captured step, at the price of one more pass over the weights.
    """
    for names, sgd in work.rates:
        gradients = [gradient[name] for name in names]
        weights, buffers = ([tree[name] for name in names] for tree in (row.params, row.momentum))
        if weights and weights[0].is_cuda and weights[0].dtype == torch.float32 and sgd.momentum:
            _update_at_once(weights, gradients, buffers, sgd, lr if sgd.lr is None else sgd.lr)
            continue
        if sgd.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=sgd.weight_decay))
        torch._foreach_mul_(buffers, sgd.momentum)
        torch._foreach_add_(buffers, gradients)
        rate = lr if sgd.lr is None else sgd.lr
        if isinstance(rate, torch.Tensor):
            torch._foreach_sub_(weights, torch._foreach_mul(buffers, rate))
        else:
            torch._foreach_add_(weights, buffers, alpha=-rate)


def _update_at_once(
    weights: list[torch.Tensor],
    gradients: list[torch.Tensor],
    buffers: list[torch.Tensor],
    rate: Rate,
    lr: float | torch.Tensor,
) -> None:
    """The same in one kernel for all tensors of a GPU; it wants gradients laid out as the weights are."""
    laid = [_laid(gradient, weight) for gradient, weight in zip(gradients, weights, strict=True)]
    torch._fused_sgd_(
        weights, laid, buffers, weight_decay=rate.weight_decay, momentum=rate.momentum, lr=lr, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip


def _laid(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A gradient in the layout of its weight; strides of axes of length one may differ without a difference."""
    if gradient.stride() == weight.stride():
        return gradient
    if weight.is_contiguous():
        return gradient.contiguous().as_strided(weight.shape, weight.stride())
    return torch.empty_like(weight).copy_(gradient)
