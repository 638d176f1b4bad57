"""Gradients of many clients at once: stacked layers for the body, `vmap` for head and terms."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedblade.core.gradient import Work, add_gradient, tap_of, teachers_of, with_freed
from fedblade.core.phase import Lookahead, MoveView
from fedblade.core.plan import Batch
from fedblade.core.problem import Problem, Received
from fedblade.core.samples import Samples
from fedblade.core.terms import Added, AnyTerm, GradientTerm, StepGradient, add_up, differentiate
from fedblade.core.tree import Tree, tree_clone, tree_select
from fedblade.core.views import HeadOutput, StepView, Tap, Teacher, TeacherOutput
from fedblade.engines._group import first_rows
from fedblade.engines.layers._body import StackedBody


@dataclass(frozen=True)
class ManyClients:
    """Gradients of a group. Every tensor has a client axis in front; a sum over clients mixes none of them."""

    problem: Problem
    body: StackedBody

    def compute(
        self, received: Received, work: Work, terms: Sequence[AnyTerm], batch: Batch, params: Tree, buffers: Tree
    ) -> StepGradient:
        """Gradient of `terms` for each client, at `params [clients, …]` and on batches [clients, batch]."""
        clients = len(batch.indices)
        inputs, labels = gather(self.problem.samples, batch.indices, batch.draws)
        training = work.phase.statistics == "update"
        tap = tap_of(terms)
        body = self.complete(received, params)
        features, stages = self.features(body, buffers, inputs, batch.mask, training=training, tap=tap)
        with torch.no_grad():
            taught = {each: self._teach(received, each, inputs, batch.mask, clients) for each in teachers_of(terms)}
        rows: dict[str, Any] = {
            "params": params,
            "anchor": {name: leaf[:clients] for name, leaf in received.anchor.items()},
            "labels": labels,
            "counts": received.task.counts[:clients],
            "client": first_rows(received.client, clients),
            "stages": stages,
            "teachers": taught,
        }
        rows |= {} if batch.mask is None else {"mask": batch.mask}
        rows |= {} if batch.noise is None else {"noise": batch.noise}

        def evaluate(some: Sequence[AnyTerm], at: Tensor) -> Added:
            def one(view: StepView) -> tuple[Any, ...]:
                added = add_up(some, view)
                return added.total, added.supervised, added.values, added.logs

            return Added(*self._each(received, rows, at, one))

        result = differentiate(terms, features, evaluate, tree_select(params, work.trained))
        with torch.no_grad():
            for term in terms:
                if isinstance(term, GradientTerm):
                    add_gradient(result.gradient, self._each(received, rows, features, term.gradient), term.weight)
        return result

    def complete(self, received: Received, params: Tree) -> Tree:
        """`params [clients, …]` and the body's frozen parameters, whose client axis is a view that repeats them."""
        network = self.problem.network
        clients = len(next(iter(params.values())))
        return network.complete(
            params, {name: received.fixed[name].expand(clients, *received.fixed[name].shape) for name in network.frozen}
        )

    def features(
        self, params: Tree, buffers: Tree, inputs: Tensor, mask: Tensor | None, *, training: bool, tap: Tap = "none"
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [clients, batch, dim] in the inputs' type, the body in the reduced one if the run asks for it."""
        reduced = self.problem.network.autocast
        with nullcontext() if reduced is None else torch.autocast(inputs.device.type, dtype=reduced):
            features, stages = self.body(params, buffers, inputs, mask, training=training, tap=tap)
        return features.to(inputs.dtype), tuple(stage.to(inputs.dtype) for stage in stages)

    def of_one(self, params: Tree, buffers: Tree, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of one model in evaluation mode, on a GPU by the kernels of the stacked layers."""
        if not inputs.is_cuda:
            return self.problem.network.eval_features(params, buffers, inputs)
        body, statistics = ({n: leaf[None] for n, leaf in tree.items()} for tree in (params, buffers))
        return self.features(body, statistics, inputs[None], None, training=False)[0][0]

    def move(self, look: Lookahead, view: MoveView) -> Tree:
        """Where each client's look-ahead takes the second gradient."""
        clients = len(next(iter(view.params.values())))
        anchor = {name: leaf[:clients] for name, leaf in view.anchor.items()}

        def one(params: Tree, start: Tree, gradient: Tree) -> Tree:
            return look.move(MoveView(params, start, gradient, view.lr))

        moved: Tree = torch.func.vmap(one)(view.params, anchor, view.gradient)
        return moved

    def clip(self, gradient: Tree, limit: float) -> Tree:
        """Each client's gradient, shortened to `limit` if it is longer."""
        if not gradient:
            return gradient
        rows = [leaf.reshape(len(leaf), -1) for leaf in gradient.values()]
        lengths = torch.stack([torch.linalg.vector_norm(row, dim=1, dtype=torch.float64) for row in rows])
        factor = (limit / (torch.linalg.vector_norm(lengths, dim=0) + 1e-6)).clamp(max=1.0)
        return {n: leaf * factor.to(leaf).reshape(-1, *(1,) * (leaf.dim() - 1)) for n, leaf in gradient.items()}

    def _each(self, received: Received, rows: dict[str, Any], features: Tensor, of: Callable[[StepView], Any]) -> Any:
        """Apply `of` to the view of every client."""
        network = self.problem.network

        def one(z: Tensor, *leaves: Tensor) -> Any:
            mine = _rebuilt(rows, iter(leaves))
            fixed = with_freed(received.fixed, mine["params"])
            view = StepView(
                fixed=fixed,
                head=network.head,
                features=z,
                output=network.output(mine["params"], fixed, z),
                server=received.server,
                round=received.task.round,
                **(mine | {"teachers": {teacher: _taught(*said) for teacher, said in mine["teachers"].items()}}),
            )
            return of(view)

        # A flat list of tensors, because vmap walks through trees several times, and slowly.
        return torch.func.vmap(one)(features, *_leaves(rows))

    def _teach(
        self, received: Received, teacher: Teacher, inputs: Tensor, mask: Tensor | None, clients: int
    ) -> tuple[Tensor, ...]:
        """Features, logits, projections and raw logits of a teacher for every client."""
        anchor = {name: leaf[:clients] for name, leaf in received.anchor.items()}
        buffers = {name: leaf[:clients] for name, leaf in received.buffers.items()}
        if teacher.of != "anchor":
            state = {name: leaf[:clients] for name, leaf in received.client[teacher.of].items()}
            anchor, buffers = anchor | tree_select(state, anchor), buffers | tree_select(state, buffers)
        by_batch = teacher.norm == "batch"
        own = tree_clone(buffers) if by_batch else buffers
        features, _ = self.features(self.complete(received, anchor), own, inputs, mask, training=by_batch)
        network = self.problem.network

        def one(z: Tensor, params: Tree) -> tuple[Tensor, Tensor, Tensor]:
            fixed = with_freed(received.fixed, params)
            output = network.output(params, fixed, z)
            return output.logits, output.projected, network.head.raw_logits(params, fixed, output)

        return (features, *torch.func.vmap(one)(features, anchor))


def _leaves(value: Any) -> Iterator[Tensor]:
    """The tensors of nested dictionaries and tuples, in order."""
    if isinstance(value, Tensor):
        yield value
    else:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)


def _rebuilt(value: Any, leaves: Iterator[Tensor]) -> Any:
    """The same dictionaries and tuples with other tensors in place of their own."""
    if isinstance(value, Tensor):
        return next(leaves)
    if isinstance(value, dict):
        return {name: _rebuilt(each, leaves) for name, each in value.items()}
    return tuple(_rebuilt(each, leaves) for each in value)


def _taught(features: Tensor, logits: Tensor, projected: Tensor, raw: Tensor) -> TeacherOutput:
    return TeacherOutput(features, HeadOutput(logits, projected), raw)


def gather(samples: Samples, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Inputs [clients, batch, …] and labels [clients, batch]."""
    inputs, labels = samples.batch(indices.flatten(), None if draws is None else draws.flatten(0, 1))
    return inputs.reshape(*indices.shape, *inputs.shape[1:]), labels.reshape(indices.shape)
