"""The one local loop: mini-batch SGD of one client on its method's terms."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedblade.core.plan import Batch
from fedblade.core.problem import Problem, Received
from fedblade.core.terms import AnyTerm, GradientTerm, active, differentiate
from fedblade.core.tree import Tree, tree_clone, tree_norm, tree_select, tree_zeros
from fedblade.core.views import StepView

Trace = list[Mapping[str, Tensor]]
"""What each step logged, in order; tensors stay on the device until the client has finished."""


@dataclass
class Row:
    """The tensors a client changes while it trains."""

    params: Tree
    buffers: Tree
    momentum: Tree


def train(problem: Problem, received: Received) -> tuple[Row, Trace]:
    """Run the client's phases, each over its planned batches.

    Momentum starts from zero in every phase unless the run keeps it between participations.
    """
    start = received.momentum
    row = Row(
        params=tree_clone(received.anchor),
        buffers=tree_clone(received.buffers),
        momentum=tree_zeros(received.anchor) if start is None else tree_clone(start),
    )
    trace: Trace = []
    with _own_randomness(received.task.seed, problem.samples.labels.device):
        _run_phases(problem, received, row, trace)
    for leaf in row.params.values():
        leaf.requires_grad_(False)
    return row, trace


def _run_phases(problem: Problem, received: Received, row: Row, trace: Trace) -> None:
    for number, (phase, batches) in enumerate(zip(problem.method.phases, received.task.phases, strict=True)):
        if number and not problem.settings.persist:
            row.momentum = tree_zeros(row.momentum)
        terms = active(problem.method.losses if phase.losses is None else phase.losses)
        trained = problem.network.names_in(phase.trains, row.params)
        for batch in batches:
            trace.append(step(problem, received, row, terms, trained, batch))


@contextmanager
def _own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, which dropout and its like draw from, for one client, and put them back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def step(
    problem: Problem,
    received: Received,
    row: Row,
    terms: Sequence[AnyTerm],
    trained: frozenset[str],
    batch: Batch,
) -> Mapping[str, Tensor]:
    """Forward, backward and one SGD update of the `trained` parameters in place; returns what to log."""
    inputs, labels = problem.samples.batch(batch.indices, batch.draws)
    for name, leaf in row.params.items():
        leaf.requires_grad_(name in trained)
    features = problem.network.features(row.params, row.buffers, inputs, training=True)
    view_at = partial(_view, problem, received, row, labels)
    slope = differentiate(terms, features, view_at, tree_select(row.params, trained))
    with torch.no_grad():
        for term in terms:
            if isinstance(term, GradientTerm):
                _add(slope.gradient, term, view_at(features))
        _update(problem, row, slope.gradient, received.lr)
        bounded = problem.network.head.constrain(row.params)
    return {f"loss_{name}": value for name, value in slope.values.items()} | dict(slope.logs) | bounded


def _view(problem: Problem, received: Received, row: Row, labels: Tensor, features: Tensor) -> StepView:
    return StepView(
        params=row.params,
        anchor=received.anchor,
        fixed=received.fixed,
        head=problem.network.head,
        features=features,
        output=problem.network.output(row.params, received.fixed, features),
        labels=labels,
        counts=received.task.counts,
        server=received.server,
        client=received.client,
        round=received.task.round,
    )


def _add(gradient: Tree, term: GradientTerm, view: StepView) -> None:
    for name, extra in tree_select(term.gradient(view), gradient).items():
        gradient[name] = gradient[name].add(extra, alpha=term.weight)


def _update(problem: Problem, row: Row, gradient: Tree, lr: float) -> None:
    """Clip, then SGD with PyTorch's semantics: g ← g + wd·w, buf ← mom·buf + g, w ← w − lr·buf."""
    settings = problem.settings
    if settings.clip is not None:
        factor = (settings.clip / (tree_norm(gradient) + 1e-6)).clamp(max=1.0)
        gradient = {name: leaf * factor.to(leaf) for name, leaf in gradient.items()}
    if not gradient:
        return
    weights, buffers = ([tree[name] for name in gradient] for tree in (row.params, row.momentum))
    slopes = list(gradient.values())
    if settings.weight_decay:
        slopes = list(torch._foreach_add(slopes, weights, alpha=settings.weight_decay))
    torch._foreach_mul_(buffers, settings.momentum)
    torch._foreach_add_(buffers, slopes)
    torch._foreach_add_(weights, buffers, alpha=-lr)
