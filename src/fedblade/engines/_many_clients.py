"""Gradients of a group at once: stacked layers for the body, `vmap` for head and terms."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedblade.core.gradient import Work, add_gradient, tap_of, teacher_output, teachers_of, with_freed
from fedblade.core.phase import Lookahead, MoveView
from fedblade.core.plan import Batch
from fedblade.core.problem import Problem, Received
from fedblade.core.samples import Samples
from fedblade.core.terms import Added, AnyTerm, GradientTerm, StepGradient, add_up, differentiate
from fedblade.core.tree import Tree, tree_clone, tree_select
from fedblade.core.views import HeadOutput, StepView, Tap, Teacher, TeacherOutput
from fedblade.engines._group import first_clients, repeated
from fedblade.engines.layers import StackedBody


@dataclass(frozen=True)
class ManyClients:
    """Gradients of a group. Every tensor has a client axis in front, and no client's loss depends on another client."""

    problem: Problem
    body: StackedBody

    def compute(
        self, received: Received, work: Work, terms: Sequence[AnyTerm], batch: Batch, params: Tree, buffers: Tree
    ) -> StepGradient:
        """Gradient of `terms` for each client, at `params [clients, …]` and on batches [clients, batch]."""
        inputs, labels = gather(self.problem.samples, batch.indices, batch.draws)
        training, tap = work.phase.statistics == "update", tap_of(terms)
        body = self.complete(received, params)
        features, stages = self.features(body, buffers, inputs, batch.mask, training=training, tap=tap)
        fields = {"params": params, "labels": labels, "stages": stages, **self._fields(received, terms, batch, inputs)}

        def evaluate(chosen: Sequence[AnyTerm], at: Tensor) -> Added:
            def one(view: StepView) -> tuple[Any, ...]:
                added = add_up(chosen, view)
                return added.total, added.supervised, added.values, added.logs

            return Added(*self._map_clients(received, fields, at, one))

        result = differentiate(terms, features, evaluate, tree_select(params, work.trained))
        with torch.no_grad():
            for term in terms:
                if isinstance(term, GradientTerm):
                    extra = self._map_clients(received, fields, features, term.gradient)
                    add_gradient(result.gradient, extra, term.weight)
        return result

    @torch.no_grad()
    def _fields(self, received: Received, terms: Sequence[AnyTerm], batch: Batch, inputs: Tensor) -> dict[str, Any]:
        """Fields of the clients' views that do not depend on the trained parameters, with a client axis."""
        clients = len(batch.indices)
        teachers = {
            teacher: self._ask_teacher(received, teacher, inputs, batch.mask, clients) for teacher in teachers_of(terms)
        }
        fields: dict[str, Any] = {
            "anchor": first_clients(received.anchor, clients),
            "counts": received.task.counts[:clients],
            "client": {name: first_clients(tree, clients) for name, tree in received.client.items()},
            "teachers": teachers,
        }
        fields |= {} if batch.mask is None else {"mask": batch.mask}
        return fields | ({} if batch.noise is None else {"noise": batch.noise})

    def complete(self, received: Received, params: Tree) -> Tree:
        """`params [clients, …]` and the frozen parameters of the body, repeated for every client."""
        network = self.problem.network
        clients = len(next(iter(params.values())))
        return network.complete(params, {name: repeated(received.fixed[name], clients) for name in network.frozen})

    def features(
        self, params: Tree, buffers: Tree, inputs: Tensor, mask: Tensor | None, *, training: bool, tap: Tap = "none"
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [clients, batch, dim] in the type of the inputs; the body may run in a reduced type."""
        reduced = self.problem.network.autocast
        with nullcontext() if reduced is None else torch.autocast(inputs.device.type, dtype=reduced):
            features, stages = self.body(params, buffers, inputs, mask, training=training, tap=tap)
        return features.to(inputs.dtype), tuple(stage.to(inputs.dtype) for stage in stages)

    def features_of_one(self, params: Tree, buffers: Tree, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of one model in evaluation mode; a GPU uses the kernels of the stacked layers."""
        if not inputs.is_cuda:
            return self.problem.network.eval_features(params, buffers, inputs)
        body, statistics = ({n: leaf[None] for n, leaf in tree.items()} for tree in (params, buffers))
        return self.features(body, statistics, inputs[None], None, training=False)[0][0]

    def move(self, look: Lookahead, view: MoveView) -> Tree:
        """Where each client's look-ahead takes the second gradient."""
        clients = len(next(iter(view.params.values())))
        anchor = first_clients(view.anchor, clients)

        def one(params: Tree, start: Tree, gradient: Tree) -> Tree:
            return look.move(MoveView(params, start, gradient, view.lr))

        moved: Tree = torch.func.vmap(one)(view.params, anchor, view.gradient)
        return moved

    def clip(self, gradient: Tree, limit: float) -> Tree:
        """Each client's gradient, shortened to `limit` if it is longer."""
        if not gradient:
            return gradient
        flat = [leaf.reshape(len(leaf), -1) for leaf in gradient.values()]
        norms = torch.stack([torch.linalg.vector_norm(leaf, dim=1, dtype=torch.float64) for leaf in flat])
        factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        return {n: leaf * factor.to(leaf).reshape(-1, *(1,) * (leaf.dim() - 1)) for n, leaf in gradient.items()}

    def _map_clients(
        self, received: Received, fields: dict[str, Any], features: Tensor, function: Callable[[StepView], Any]
    ) -> Any:
        """Apply a function to the view of every client; `fields` are the fields of views, with a client axis."""
        network = self.problem.network

        def one(z: Tensor, *leaves: Tensor) -> Any:
            client = _rebuilt(fields, iter(leaves))
            fixed = with_freed(received.fixed, client["params"])
            view = StepView(
                fixed=fixed,
                head=network.head,
                features=z,
                output=network.output(client["params"], fixed, z),
                server=received.server,
                round=received.task.round,
                **(client | {"teachers": {key: _teacher_output(*parts) for key, parts in client["teachers"].items()}}),
            )
            return function(view)

        # A flat list of tensors, because vmap walks through trees several times, and slowly.
        return torch.func.vmap(one)(features, *_leaves(fields))

    def _ask_teacher(
        self, received: Received, teacher: Teacher, inputs: Tensor, mask: Tensor | None, clients: int
    ) -> tuple[Tensor, ...]:
        """Features, logits, projections and raw logits of a teacher for every client."""
        params = first_clients(received.anchor, clients)
        buffers = first_clients(received.buffers, clients)
        if teacher.of != "anchor":
            state = first_clients(received.client[teacher.of], clients)
            params, buffers = params | tree_select(state, params), buffers | tree_select(state, buffers)
        batch_norm = teacher.norm == "batch"
        # A pass with batch statistics would update the buffers it is given.
        buffers = tree_clone(buffers) if batch_norm else buffers
        features, _ = self.features(self.complete(received, params), buffers, inputs, mask, training=batch_norm)
        network = self.problem.network

        def one(z: Tensor, client_params: Tree) -> tuple[Tensor, Tensor, Tensor]:
            made = teacher_output(network, client_params, received.fixed, z)
            return made.output.logits, made.output.projected, made.raw_logits

        return (features, *torch.func.vmap(one)(features, params))


def _leaves(value: Any) -> Iterator[Tensor]:
    """The tensors of nested dictionaries and tuples, in order."""
    if isinstance(value, Tensor):
        yield value
    else:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)


def _rebuilt(value: Any, leaves: Iterator[Tensor]) -> Any:
    """The same dictionaries and tuples with `leaves` in place of their tensors, in order."""
    if isinstance(value, Tensor):
        return next(leaves)
    if isinstance(value, dict):
        return {name: _rebuilt(part, leaves) for name, part in value.items()}
    return tuple(_rebuilt(part, leaves) for part in value)


def _teacher_output(features: Tensor, logits: Tensor, projected: Tensor, raw: Tensor) -> TeacherOutput:
    return TeacherOutput(features, HeadOutput(logits, projected), raw)


def gather(samples: Samples, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Inputs [clients, batch, …] and labels [clients, batch]."""
    inputs, labels = samples.batch(indices.flatten(), None if draws is None else draws.flatten(0, 1))
    return inputs.reshape(*indices.shape, *inputs.shape[1:]), labels.reshape(indices.shape)
