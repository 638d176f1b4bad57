"""One client alone: the definition of what clients side by side compute."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedblade.core.clients import Clients, Fields, Trace
from fedblade.core.gradient import step_gradient
from fedblade.core.local import train
from fedblade.core.passes import PassBatch, PassData, PassModel, batch_of_one_model, chunks
from fedblade.core.phase import Phase
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.receive import receive_clients, with_batches
from fedblade.core.samples import Samples
from fedblade.core.state import ServerState
from fedblade.core.sums import DataPass
from fedblade.core.terms import StepGradient
from fedblade.core.tree import State, Tree, tree_clone, tree_map
from fedblade.core.views import Tap
from fedblade.core.work import Work


@dataclass(frozen=True)
class OneClient(Clients):
    """One client, whose tensors have no client axis: `map` calls the function once.

    `pass_batch` is the number of samples in a batch of a pass; 0 stands for what suits the inputs. Another number
    changes nothing but rounding where the network takes no batch statistics.
    """

    axes: ClassVar[int] = 0
    pass_batch: int = 0

    def map(self, function: Callable[[Fields], Any], fields: Fields) -> Any:
        """The function's value for the client."""
        return function(fields)

    def features(
        self,
        params: Tree,
        fixed: Tree,
        buffers: Tree,
        inputs: Tensor,
        mask: Tensor | None,  # noqa: ARG002 - a client alone has no padding
        *,
        training: bool,
        tap: Tap = "none",
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features [batch, dim], and the outputs of the body's stages if they are tapped."""
        network = self.problem.network
        return network.tapped(network.complete(params, fixed), buffers, inputs, training=training, tap=tap)

    def read(self, samples: Samples, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inputs and labels of a batch."""
        return samples.batch(indices, draws)

    def join(self, common: Tree, by_client: Sequence[Tree]) -> Tree:
        """The client's tree, completed by the common one."""
        (tree,) = by_client
        return common | tree_clone(tree)

    def numbers(self, by_client: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
        """The client's numbers."""
        (numbers,) = by_client
        return numbers

    def with_axis(self, trees: Mapping[str, Tree]) -> dict[str, Tree]:
        """The trees with a client axis of length one."""
        return {name: tree_map(lambda leaf: leaf[None], tree) for name, tree in trees.items()}

    def batches(self, tasks: Sequence[ClientTask]) -> tuple[tuple[Batch, ...], ...]:
        """The client's batches on the training device."""
        (task,) = tasks
        return task.on(self.problem.samples.labels.device).phases

    def taking_part(self, received: Received, model: LocalModel, batch: Batch) -> tuple[Received, LocalModel]:  # noqa: ARG002
        """The client itself."""
        return received, model

    def at(self, position: int, received: Received, model: LocalModel) -> tuple[Received, LocalModel]:  # noqa: ARG002
        """The client itself."""
        return received, model

    def is_common(self, leaf: Tensor) -> bool:  # noqa: ARG002
        """True: there is one client."""
        return True

    def gradients(self, received: Received, work: Work, model: LocalModel) -> Callable[[Batch], StepGradient]:
        """The gradient of a step as a function of the batch."""
        return lambda batch: step_gradient(self, received, work, batch, model)

    def train(
        self, received: Received, tasks: Sequence[ClientTask], phases: Sequence[Phase] | None = None
    ) -> tuple[LocalModel, Trace]:
        """The model after the local loop, and what its steps logged."""
        return train(self, with_batches(self, received, tasks), phases)

    @torch.no_grad()
    def run_passes(self, passes: Sequence[DataPass], models: PassModel, data: PassData) -> dict[str, Tree]:
        """Totals of the passes over the client's samples, with one forward pass per batch."""
        totals: dict[str, Tree] = {}
        (indices,) = data.indices
        size = self.pass_batch or batch_of_one_model(self.problem.network, data.samples)
        for positions in chunks(torch.arange(len(indices), device=indices.device), size) if passes else ():
            for name, tree in self.run_batch(passes, models, self._batch(data, positions)).items():
                if name in totals:
                    # In place: a new tensor of many megabytes per batch costs more than the addition.
                    tree_map(Tensor.add_, totals[name], tree)
                else:
                    totals[name] = tree_map(lambda leaf: leaf.to(torch.float64, copy=True), tree)
        return totals

    def _batch(self, data: PassData, positions: Tensor) -> PassBatch:
        """The samples at these positions of the data.

        Batch statistics need two values: a sample alone is doubled, and the copy is masked.
        """
        samples, mask = data.samples, None
        if len(positions) == 1 and self.problem.network.skips_singletons:
            positions, mask = positions.repeat(2), torch.tensor([1.0, 0.0]).to(samples.scale)
        draws = None if data.draws is None or data.draws[0] is None else data.draws[0][positions]
        inputs, labels = self.read(samples, data.indices[0][positions], draws)
        return PassBatch(inputs, labels, mask, data.anchor_features_at(positions))


def receive(
    problem: Problem,
    server: ServerState,
    task: ClientTask,
    state: State | None,
    lr: float,
    phases: Sequence[Phase] | None = None,
) -> Received:
    """What one client has when its round begins, with its batches."""
    client = OneClient(problem)
    return with_batches(client, receive_clients(client, server, [task], [state], lr, phases), [task])


def train_alone(
    problem: Problem, received: Received, phases: Sequence[Phase] | None = None
) -> tuple[LocalModel, Trace]:
    """Run the local loop of one client on the batches that it received."""
    return train(OneClient(problem), received, phases)
