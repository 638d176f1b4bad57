"""The one local loop: mini-batch SGD of one client on its method's terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.plan import Batch
from fedblade.core.problem import Problem, Received
from fedblade.core.terms import AnyTerm, GradientTerm, active, objective
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
    for number, (phase, batches) in enumerate(zip(problem.method.phases, received.task.phases, strict=True)):
        if number and not problem.settings.persist:
            row.momentum = tree_zeros(row.momentum)
        terms = active(problem.method.losses if phase.losses is None else phase.losses)
        trained = problem.network.names_in(phase.trains, row.params)
        for batch in batches:
            trace.append(step(problem, received, row, terms, trained, batch))
    for leaf in row.params.values():
        leaf.requires_grad_(False)
    return row, trace


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
    view = StepView(
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
    loss = objective(terms, view)
    gradient = _gradient(loss.total, tree_select(row.params, trained))
    with torch.no_grad():
        _add_gradient_terms(gradient, terms, view)
        _update(problem, row, gradient, received.lr)
        bounded = problem.network.head.constrain(row.params)
    return {f"loss_{name}": value for name, value in loss.values.items()} | dict(loss.logs) | bounded


def _gradient(total: Tensor, leaves: Tree) -> Tree:
    """Gradient for each leaf; a leaf the loss does not reach has gradient zero."""
    if not total.requires_grad or not leaves:
        return tree_zeros(leaves)
    parts = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(w) if g is None else g for (n, w), g in zip(leaves.items(), parts, strict=True)}


def _add_gradient_terms(gradient: Tree, terms: Sequence[AnyTerm], view: StepView) -> None:
    for term in terms:
        if isinstance(term, GradientTerm):
            for name, extra in tree_select(term.gradient(view), gradient).items():
                gradient[name] = gradient[name].add(extra, alpha=term.weight)


def _update(problem: Problem, row: Row, gradient: Tree, lr: float) -> None:
    """Clip, then SGD with PyTorch's semantics: g ← g + wd·w, buf ← mom·buf + g, w ← w − lr·buf."""
    settings = problem.settings
    if settings.clip is not None:
        factor = (settings.clip / (tree_norm(gradient) + 1e-6)).clamp(max=1.0)
        gradient = {name: leaf * factor.to(leaf) for name, leaf in gradient.items()}
    for name, slope in gradient.items():
        weight, buffer = row.params[name], row.momentum[name]
        if settings.weight_decay:
            slope = slope.add(weight, alpha=settings.weight_decay)
        buffer.mul_(settings.momentum).add_(slope)
        weight.add_(buffer, alpha=-lr)
