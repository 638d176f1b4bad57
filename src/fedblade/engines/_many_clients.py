"""A group of clients side by side: stacked layers for the body, `vmap` for head, terms, passes and sums."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedblade.core.clients import Clients, Fields, Trace
from fedblade.core.local import train
from fedblade.core.network import BODY
from fedblade.core.one_client import OneClient
from fedblade.core.passes import PassData, PassModel
from fedblade.core.phase import Phase
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.receive import with_batches
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass
from fedblade.core.terms import StepGradient
from fedblade.core.tree import Tree
from fedblade.core.views import Tap
from fedblade.core.work import Work
from fedblade.engines._client_axis import is_repeated, with_client_axis
from fedblade.engines._group_passes import GroupPasses
from fedblade.engines._layout import side_by_side
from fedblade.engines._recorded_step import Steps
from fedblade.engines._recordings import Recordings
from fedblade.engines._slots import SlotTrainer
from fedblade.engines.layers import StackedBody


@dataclass(frozen=True)
class ManyClients(Clients):
    """Clients side by side. Every tensor has a client axis in front, and no client's loss depends on another client.

    `slots` train where steps are captured and replayed, `recordings` where they are recorded and repeated on a CPU.
    `passes`, `slots` and `recordings` remember what they have captured or recorded.
    """

    axes: ClassVar[int] = 1
    body: StackedBody
    passes: GroupPasses = field(default_factory=GroupPasses)
    slots: SlotTrainer | None = None
    recordings: Recordings | None = None

    def map(self, function: Callable[[Fields], Any], fields: Fields) -> Any:
        """The function's value for each client, computed at once with `torch.func.vmap`."""
        leaves = list(_leaves(fields))
        # The one tensor of a leaf that all clients share; vmap does not see it.
        shared = [leaf[0] if is_repeated(leaf) else None for leaf in leaves]

        def one(*tensors: Tensor) -> Any:
            own = iter(tensors)
            return function(_rebuilt(fields, (next(own) if leaf is None else leaf for leaf in shared)))

        # A flat list of tensors with one axis for all, because vmap walks through trees several times, and slowly.
        own = (leaf for leaf, common in zip(leaves, shared, strict=True) if common is None)
        return torch.func.vmap(one)(*own)

    def features(
        self,
        params: Tree,
        fixed: Tree,
        buffers: Tree,
        inputs: Tensor,
        mask: Tensor | None,
        *,
        training: bool,
        tap: Tap = "none",
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [clients, batch, dim] in the type of the inputs; the body may run in a reduced type.

        A body that all clients have in common takes the samples of all clients at once in evaluation mode.
        """
        network = self.problem.network
        body = {name: leaf for name, leaf in network.complete(params, fixed).items() if name.startswith(BODY)}
        tensors = list((body | buffers).values())
        by_sample = not (training or network.takes_batch_statistics or tap != "none")
        if by_sample and tensors and all(map(is_repeated, tensors)):
            common, statistics = ({name: leaf[0] for name, leaf in tree.items()} for tree in (body, buffers))
            features = self.features_of_one(common, statistics, inputs.flatten(0, 1))
            return features.reshape(*inputs.shape[:2], -1), ()
        return self._stacked(body, buffers, inputs, mask, training=training, tap=tap)

    def _stacked(
        self, body: Tree, buffers: Tree, inputs: Tensor, mask: Tensor | None, *, training: bool, tap: Tap = "none"
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [clients, batch, dim] and tapped stages by the stacked layers."""
        reduced = self.problem.network.autocast
        with nullcontext() if reduced is None else torch.autocast(inputs.device.type, dtype=reduced):
            features, stages = self.body(body, buffers, inputs, mask, training=training, tap=tap)
        return features.to(inputs.dtype), tuple(stage.to(inputs.dtype) for stage in stages)

    def features_of_one(self, params: Tree, buffers: Tree, inputs: Tensor) -> Tensor:
        """Features [batch, dim] of one model in evaluation mode; a GPU uses the kernels of the stacked layers."""
        if not inputs.is_cuda:
            return self.problem.network.features(params, buffers, inputs, training=False)
        body, statistics = ({n: leaf[None] for n, leaf in tree.items()} for tree in (params, buffers))
        return self._stacked(body, statistics, inputs[None], None, training=False)[0][0]

    def read(self, samples: Samples, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inputs [clients, batch, …] and labels [clients, batch]."""
        inputs, labels = samples.batch(indices.flatten(), None if draws is None else draws.flatten(0, 1))
        return inputs.reshape(*indices.shape, *inputs.shape[1:]), labels.reshape(indices.shape)

    def join(self, common: Tree, by_client: Sequence[Tree]) -> Tree:
        """The trees of the clients with a client axis, which is a view where no client has a leaf of its own."""
        return with_client_axis(common, by_client)

    def numbers(self, by_client: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
        """The numbers of all clients, in float64 [clients]."""
        device = self.problem.samples.labels.device
        return {
            name: torch.tensor([numbers[name] for numbers in by_client], dtype=torch.float64, device=device)
            for name in by_client[0]
        }

    def with_axis(self, trees: Mapping[str, Tree]) -> dict[str, Tree]:
        """The trees as they are: `map` gives every leaf a client axis."""
        return dict(trees)

    def batches(self, tasks: Sequence[ClientTask]) -> tuple[tuple[Batch, ...], ...]:
        """The batches of each phase side by side; the tasks must be ordered by their steps in every phase."""
        device = self.problem.samples.labels.device
        return tuple(side_by_side(phase, device) for phase in zip(*(task.phases for task in tasks), strict=True))

    def taking_part(self, received: Received, model: LocalModel, batch: Batch) -> tuple[Received, LocalModel]:
        """What the first clients received, and their models: clients that have ended are the last on the axis."""
        clients = slice(len(batch.indices))
        if len(batch.indices) < len(received.counts):
            received = received.part(clients)
        # Always views: a step marks what trains, and no view of a marked tensor can be marked again.
        return received, model.part(clients)

    def at(self, position: int, received: Received, model: LocalModel) -> tuple[Received, LocalModel]:
        """One client of the group, still with a client axis."""
        client = slice(position, position + 1)
        return received.part(client), model.part(client)

    def is_common(self, leaf: Tensor) -> bool:
        """Whether the client axis repeats one tensor, or has one client."""
        return is_repeated(leaf) or len(leaf) == 1

    def gradients(self, received: Received, work: Work, model: LocalModel) -> Callable[[Batch], StepGradient]:
        """The gradient of a step of every client as a function of the batch, recorded where that can be."""
        steps = Steps(self, received, work, model)
        return steps.gradient if self.recordings is None else self.recordings.gradients(steps)

    def train(
        self, received: Received, tasks: Sequence[ClientTask], phases: Sequence[Phase] | None = None
    ) -> tuple[LocalModel, Trace]:
        """The models after the local loop, and what its steps logged; `tasks` are ordered most steps first."""
        if self.slots is not None and phases is None:
            return self.slots.train(self, received, tasks)
        return train(self, with_batches(self, received, tasks), phases)

    def run_passes(self, passes: Sequence[DataPass], models: PassModel, data: PassData) -> dict[str, Tree]:
        """Totals of the passes over the samples of each client, in float64 and with a client axis."""
        return self.passes.run(self, passes, models, data)


@dataclass(frozen=True, kw_only=True)
class OneOfMany(OneClient):
    """One model, computed with the layers of the group: on a GPU their kernels are faster than the usual ones."""

    many: ManyClients

    def features(
        self,
        params: Tree,
        fixed: Tree,
        buffers: Tree,
        inputs: Tensor,
        mask: Tensor | None,
        *,
        training: bool,
        tap: Tap = "none",
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [batch, dim] of the model."""
        if training or tap != "none":
            return super().features(params, fixed, buffers, inputs, mask, training=training, tap=tap)
        return self.many.features_of_one(self.problem.network.complete(params, fixed), buffers, inputs), ()


def _leaves(value: Any) -> Iterator[Tensor]:
    """The tensors of nested dictionaries and tuples, in order."""
    if isinstance(value, Tensor):
        yield value
        return
    for part in value.values() if isinstance(value, dict) else value:
        yield from _leaves(part)


def _rebuilt(value: Any, leaves: Iterator[Tensor]) -> Any:
    """The same dictionaries and tuples with `leaves` in place of their tensors, in order."""
    if isinstance(value, Tensor):
        return next(leaves)
    if isinstance(value, dict):
        return {name: _rebuilt(part, leaves) for name, part in value.items()}
    return tuple(_rebuilt(part, leaves) for part in value)
