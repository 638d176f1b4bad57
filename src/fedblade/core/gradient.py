"""The gradient of one local step: forward pass, teachers, terms, backward pass, and look-ahead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from fedblade.core.errors import Misconfigured
from fedblade.core.network import Network
from fedblade.core.phase import Lookahead, MoveView, Phase
from fedblade.core.plan import Batch
from fedblade.core.problem import LocalModel, LocalSettings, Problem, Received
from fedblade.core.terms import Added, AnyTerm, GradientTerm, StepGradient, Term, active, add_up, differentiate
from fedblade.core.tree import Tree, tree_clone, tree_norm, tree_select
from fedblade.core.views import StepView, Tap, Teacher, TeacherOutput


@dataclass(frozen=True)
class Rate:
    """Settings of SGD for some parameters; `lr` None means the round's learning rate."""

    lr: float | None
    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class Work:
    """A phase made ready: its terms, the names of trained parameters, and their optimiser settings.

    `first` are the terms of a look-ahead's first gradient.
    """

    phase: Phase
    terms: tuple[AnyTerm, ...]
    first: tuple[AnyTerm, ...]
    trained: frozenset[str]
    rates: tuple[tuple[tuple[str, ...], Rate], ...]


def prepare_phase(problem: Problem, phase: Phase, params: Tree) -> Work:
    """The work of a phase on a model with these parameters."""
    terms = active(problem.method.losses if phase.losses is None else phase.losses)
    look = phase.lookahead
    trained = problem.network.names_in(phase.trains, params) | frozenset(phase.frees)
    return Work(
        phase=phase,
        terms=terms,
        first=terms if look is None or look.losses is None else active(look.losses),
        trained=trained,
        rates=_rates(problem, phase, [name for name in params if name in trained]),
    )


def _rates(problem: Problem, phase: Phase, names: Sequence[str]) -> tuple[tuple[tuple[str, ...], Rate], ...]:
    """Parameter names grouped by their optimiser settings, in the order of the parameters."""
    chosen: dict[Rate, list[str]] = {}
    special = {
        name: sgd for group, sgd in phase.group_sgd.items() for name in problem.network.names_in((group,), names)
    }
    for name in names:
        sgd = special.get(name, phase.sgd)
        rate = _resolve(problem.settings, sgd.lr, sgd.momentum, sgd.weight_decay)
        chosen.setdefault(rate, []).append(name)
    return tuple((tuple(group), rate) for rate, group in chosen.items())


def _resolve(settings: LocalSettings, lr: float | None, momentum: float | None, weight_decay: float | None) -> Rate:
    return Rate(
        lr,
        settings.momentum if momentum is None else momentum,
        settings.weight_decay if weight_decay is None else weight_decay,
    )


class GradientEngine(Protocol):
    """How gradients are computed: for one client, or for many at once."""

    def compute(
        self, received: Received, work: Work, terms: Sequence[AnyTerm], batch: Batch, params: Tree, buffers: Tree
    ) -> StepGradient:
        """Gradient of `terms` with respect to the trained parameters, at `params` and on one batch."""

    def move(self, look: Lookahead, view: MoveView) -> Tree:
        """The parameters at which a look-ahead computes the second gradient."""

    def clip(self, gradient: Tree, limit: float) -> Tree:
        """The gradient, scaled down to the limit if its norm over all tensors is larger."""


@dataclass(frozen=True)
class OneClient:
    """Gradients of one client on one batch."""

    problem: Problem

    def compute(
        self, received: Received, work: Work, terms: Sequence[AnyTerm], batch: Batch, params: Tree, buffers: Tree
    ) -> StepGradient:
        """Gradient of `terms` with respect to the trained parameters, at `params` and on one batch."""
        problem = self.problem
        inputs, labels = problem.samples.batch(batch.indices, batch.draws)
        training = work.phase.statistics == "update"
        body = problem.network.complete(params, received.fixed)
        features, stages = problem.network.tapped(body, buffers, inputs, training=training, tap=tap_of(terms))
        teachers = _ask_teachers(problem, received, terms, inputs)
        batch_fields = {"labels": labels, "noise": batch.noise, "stages": stages, "teachers": teachers}
        view_at = partial(_view, problem, received, params, batch_fields)

        def evaluate(chosen: Sequence[AnyTerm], at: Tensor) -> Added:
            return add_up(chosen, view_at(at))

        result = differentiate(terms, features, evaluate, tree_select(params, work.trained))
        with torch.no_grad():
            for term in terms:
                if isinstance(term, GradientTerm):
                    add_gradient(result.gradient, term.gradient(view_at(features)), term.weight)
        return result

    def move(self, look: Lookahead, view: MoveView) -> Tree:
        """The parameters at which a look-ahead computes the second gradient."""
        return look.move(view)

    def clip(self, gradient: Tree, limit: float) -> Tree:
        """The gradient, scaled down to norm `limit` if it is larger, as torch does it."""
        factor = (limit / (tree_norm(gradient) + 1e-6)).clamp(max=1.0)
        return {name: leaf * factor.to(leaf) for name, leaf in gradient.items()}


def step_gradient(
    gradient_engine: GradientEngine, received: Received, work: Work, batch: Batch, model: LocalModel
) -> StepGradient:
    """The gradient of a step at the model, or where the phase's look-ahead moves to.

    Of a look-ahead's two passes only the first updates statistics, and momentum if the look-ahead asks for it.
    """
    look, params = work.phase.lookahead, model.params
    if look is None:
        return gradient_engine.compute(received, work, work.terms, batch, params, model.buffers)
    first = gradient_engine.compute(received, work, work.first, batch, params, model.buffers)
    with torch.no_grad():
        here = {name: leaf.detach() for name, leaf in tree_select(params, work.trained).items()}
        direction = _with_momentum(model.momentum, first.gradient, work) if look.momentum else first.gradient
        moved = gradient_engine.move(look, MoveView(here, received.anchor, direction, received.lr))
    there = params | {name: leaf.detach().requires_grad_() for name, leaf in moved.items()}
    second = batch if batch.then is None else batch.then
    result = gradient_engine.compute(received, work, work.terms, second, there, tree_clone(model.buffers))
    inner = {f"inner_{name}": value for name, value in first.values.items()}
    both = [name for name in first.logs if name in result.logs and name.startswith("count_")]
    counted = {name: first.logs[name] + result.logs[name] for name in both}
    return replace(result, values={**inner, **result.values}, logs={**first.logs, **result.logs, **counted})


def _with_momentum(momentum: Tree, gradient: Tree, work: Work) -> Tree:
    """Add a gradient to the momentum in place, without weight decay; returns that of the trained parameters."""
    for names, sgd in work.rates:
        for name in names:
            momentum[name].mul_(sgd.momentum).add_(gradient[name])
    return tree_select(momentum, work.trained)


def add_gradient(gradient: Tree, extra: Tree, weight: float) -> None:
    """Add `weight` times a term's gradient in place; names that are not trained are left out."""
    for name, leaf in tree_select(extra, gradient).items():
        gradient[name] = gradient[name].add(leaf, alpha=weight)


def _view(
    problem: Problem, received: Received, params: Tree, batch_fields: Mapping[str, Any], features: Tensor
) -> StepView:
    """What terms see of one client and one batch; `batch_fields` are the view's fields that belong to the batch."""
    fixed = with_freed(received.fixed, params)
    return StepView(
        params=params,
        anchor=received.anchor,
        fixed=fixed,
        head=problem.network.head,
        features=features,
        output=problem.network.output(params, fixed, features),
        counts=received.task.counts,
        server=received.server,
        client=received.client,
        round=received.task.round,
        **batch_fields,
    )


def with_freed(fixed: Tree, params: Tree) -> Tree:
    """The fixed tensors; those that a phase freed have the client's present values."""
    return fixed | tree_select(params, fixed)


def tap_of(terms: Sequence[AnyTerm]) -> Tap:
    """The tap that the terms ask for."""
    wanted: set[Tap] = {term.taps for term in terms if isinstance(term, Term) and term.taps != "none"}
    if len(wanted) > 1:
        raise Misconfigured("two terms tap the body's stages, one with ReLU and one without; give both the same tap.")
    return next(iter(wanted), "none")


def teachers_of(terms: Sequence[AnyTerm]) -> list[Teacher]:
    """The teachers that the terms ask for, each once."""
    return sorted({teacher for term in terms if isinstance(term, Term) for teacher in term.teachers}, key=repr)


@torch.no_grad()
def _ask_teachers(
    problem: Problem, received: Received, terms: Sequence[AnyTerm], inputs: Tensor
) -> dict[Teacher, TeacherOutput]:
    """One forward pass for each teacher that a term asks for."""
    return {teacher: _ask_teacher(problem, received, teacher, inputs) for teacher in teachers_of(terms)}


def _ask_teacher(problem: Problem, received: Received, teacher: Teacher, inputs: Tensor) -> TeacherOutput:
    network, params, buffers = problem.network, received.anchor, received.buffers
    if teacher.of != "anchor":
        state = received.client[teacher.of]
        params, buffers = params | tree_select(state, params), buffers | tree_select(state, buffers)
    batch_norm = teacher.norm == "batch"
    # A pass with batch statistics would update the buffers it is given.
    buffers = tree_clone(buffers) if batch_norm else buffers
    features = network.features(network.complete(params, received.fixed), buffers, inputs, training=batch_norm)
    return teacher_output(network, params, received.fixed, features)


def teacher_output(network: Network, params: Tree, fixed: Tree, features: Tensor) -> TeacherOutput:
    """What a model with these parameters gives for a batch with these features."""
    fixed = with_freed(fixed, params)
    output = network.output(params, fixed, features)
    return TeacherOutput(features, output, network.head.raw_logits(params, fixed, output))
