"""The gradient of one local step: forward pass, teachers, terms, backward pass, and look-ahead."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedblade.core.clients import Clients, Fields
from fedblade.core.errors import Misconfigured
from fedblade.core.phase import Lookahead, MoveView
from fedblade.core.plan import Batch
from fedblade.core.problem import LocalModel, Received
from fedblade.core.terms import Added, AnyTerm, FeatureTerm, GradientTerm, StepGradient, Term, add_up, differentiate
from fedblade.core.tree import Tree, tree_clone, tree_select
from fedblade.core.views import HeadOutput, StepView, Tap, Teacher, TeacherOutput
from fedblade.core.work import Work


def step_gradient(clients: Clients, received: Received, work: Work, batch: Batch, model: LocalModel) -> StepGradient:
    """The gradient of a step at the model, or where the phase's look-ahead moves to.

    Of a look-ahead's two passes only the first updates statistics, and momentum if the look-ahead asks for it.
    """
    look, params = work.phase.lookahead, model.params
    if look is None:
        return _Step(clients, received, work, batch).gradient(work.terms, params, model.buffers)
    first = _Step(clients, received, work, batch).gradient(work.first, params, model.buffers)
    with torch.no_grad():
        here = {name: leaf.detach() for name, leaf in tree_select(params, work.trained).items()}
        direction = _with_momentum(model.momentum, first.gradient, work) if look.momentum else first.gradient
        moved = _move(clients, look, received, here, direction)
    there = params | {name: leaf.detach().requires_grad_() for name, leaf in moved.items()}
    second = _Step(clients, received, work, batch if batch.then is None else batch.then)
    result = second.gradient(work.terms, there, tree_clone(model.buffers))
    inner = {f"inner_{name}": value for name, value in first.values.items()}
    both = [name for name in first.logs if name in result.logs and name.startswith("count_")]
    counted = {name: first.logs[name] + result.logs[name] for name in both}
    return replace(result, values={**inner, **result.values}, logs={**first.logs, **result.logs, **counted})


@dataclass(frozen=True)
class _Step:
    """One batch of each client, and what the clients received."""

    clients: Clients
    received: Received
    work: Work
    batch: Batch

    def gradient(self, terms: Sequence[AnyTerm], params: Tree, buffers: Tree) -> StepGradient:
        """Gradient of `terms` with respect to the trained parameters, at `params`."""
        clients, fixed, mask = self.clients, self.received.fixed, self.batch.mask
        terms = [in_round(term, self.received.round) for term in terms]
        inputs, labels = clients.read(clients.problem.samples, self.batch.indices, self.batch.draws)
        training, tap = self.work.phase.statistics == "update", tap_of(terms)
        features, stages = clients.features(params, fixed, buffers, inputs, mask, training=training, tap=tap)
        fields = {"params": params, "labels": labels, "stages": stages, **self._fields(terms, inputs)}

        def evaluate(chosen: Sequence[AnyTerm], at: Tensor) -> Added:
            def one(client: Fields) -> tuple[Any, ...]:
                added = add_up(chosen, self._view(client))
                return added.total, added.supervised, added.values, added.logs

            return Added(*clients.map(one, fields | {"features": at}))

        result = differentiate(terms, features, evaluate, tree_select(params, self.work.trained))
        seen = fields | {"features": features.detach()}
        for term in (term for term in terms if isinstance(term, GradientTerm)):
            _add_gradient(result.gradient, self._added_gradient(term, seen), term.weight)
        return result

    @torch.no_grad()
    def _added_gradient(self, term: GradientTerm, fields: Fields) -> Tree:
        """The gradient that a term adds, for each client."""
        extra: Tree = self.clients.map(lambda client: term.gradient(self._view(client)), fields)
        return extra

    def _fields(self, terms: Sequence[AnyTerm], inputs: Tensor) -> dict[str, Any]:
        """The fields of the clients' views that do not depend on the trained parameters."""
        received, batch = self.received, self.batch
        fields: dict[str, Any] = {
            "anchor": received.anchor,
            "fixed": received.fixed,
            "counts": received.counts,
            "client": received.client,
            "teachers": {teacher: self._ask(teacher, inputs) for teacher in teachers_of(terms)},
        }
        fields |= {} if batch.mask is None else {"mask": batch.mask}
        return fields | ({} if batch.noise is None else {"noise": batch.noise})

    def _view(self, client: Fields) -> StepView:
        """What terms see of one client and its batch."""
        teachers = {teacher: _teacher_output(*parts) for teacher, parts in client["teachers"].items()}
        received = self.received
        fields = {**client, "teachers": teachers}
        return self.clients.problem.network.view(**fields, server=received.server, round=received.round)

    @torch.no_grad()
    def _ask(self, teacher: Teacher, inputs: Tensor) -> tuple[Tensor, ...]:
        """Features, logits, projections and raw logits of a teacher, for each client."""
        clients, received = self.clients, self.received
        params, buffers = received.anchor, received.buffers
        if teacher.of != "anchor":
            state = received.client[teacher.of]
            params, buffers = params | tree_select(state, params), buffers | tree_select(state, buffers)
        batch_norm = teacher.norm == "batch"
        # A pass with batch statistics would update the buffers it is given.
        buffers = tree_clone(buffers) if batch_norm else buffers
        features, _ = clients.features(params, received.fixed, buffers, inputs, self.batch.mask, training=batch_norm)

        def one(client: Fields) -> tuple[Tensor, Tensor, Tensor]:
            made = clients.problem.network.teacher_output(**client)
            return made.output.logits, made.output.projected, made.raw_logits

        return (features, *clients.map(one, {"params": params, "fixed": received.fixed, "features": features}))


def _teacher_output(features: Tensor, logits: Tensor, projected: Tensor, raw: Tensor) -> TeacherOutput:
    return TeacherOutput(features, HeadOutput(logits, projected), raw)


def _move(clients: Clients, look: Lookahead, received: Received, params: Tree, gradient: Tree) -> Tree:
    """The parameters at which a look-ahead computes each client's second gradient."""

    def one(client: Fields) -> Tree:
        return look.move(MoveView(**client, lr=received.lr))

    moved: Tree = clients.map(one, {"params": params, "anchor": received.anchor, "gradient": gradient})
    return moved


def clip_gradient(clients: Clients, gradient: Tree, limit: float) -> Tree:
    """Each client's gradient, scaled down to norm `limit` if it is larger, as torch does it."""
    if not gradient:
        return gradient
    flat = [leaf.reshape(*leaf.shape[: clients.axes], -1) for leaf in gradient.values()]
    norms = torch.stack([torch.linalg.vector_norm(leaf, dim=-1, dtype=torch.float64) for leaf in flat])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    return {
        name: leaf * factor.to(leaf).reshape(factor.shape + (1,) * (leaf.dim() - clients.axes))
        for name, leaf in gradient.items()
    }


def _with_momentum(momentum: Tree, gradient: Tree, work: Work) -> Tree:
    """Add a gradient to the momentum in place, without weight decay; returns that of the trained parameters."""
    for names, sgd in work.rates:
        for name in names:
            momentum[name].mul_(sgd.momentum).add_(gradient[name])
    return tree_select(momentum, work.trained)


@torch.no_grad()
def _add_gradient(gradient: Tree, extra: Tree, weight: float) -> None:
    """Add `weight` times a term's gradient in place; names that are not trained are left out."""
    for name, leaf in tree_select(extra, gradient).items():
        gradient[name] = gradient[name].add(leaf, alpha=weight)


def in_round(term: AnyTerm, round_: int) -> AnyTerm:
    """The term with the strength that its warm-up gives it in a round; other terms as they are."""
    if not (isinstance(term, FeatureTerm) and term.warmup):
        return term
    share = min(1.0, (round_ + 1) / (term.warmup + 1))
    balance = None if term.balance is None else share * term.balance
    return replace(term, weight=share * term.weight, balance=balance, warmup=0)


def tap_of(terms: Sequence[AnyTerm]) -> Tap:
    """The tap that the terms ask for."""
    wanted: set[Tap] = {term.taps for term in terms if isinstance(term, Term) and term.taps != "none"}
    if len(wanted) > 1:
        raise Misconfigured("two terms tap the body's stages, one with ReLU and one without; give both the same tap.")
    return next(iter(wanted), "none")


def teachers_of(terms: Sequence[AnyTerm]) -> list[Teacher]:
    """The teachers that the terms ask for, each once."""
    return sorted({teacher for term in terms if isinstance(term, Term) for teacher in term.teachers}, key=repr)
