"""Clients that are computed together: one client alone, or a group of clients side by side.

The work of a client is written once, as functions of one client: the terms of a step, passes, sums, the state it keeps.
`Clients` says how such a function is applied: to the client itself (`OneClient`), or to all clients of a group at once.

In a group every tensor that belongs to a client has a client axis in front, [clients, …]. A tensor that all clients
share has the axis as a view that repeats the tensor. The server's state has no client axis.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedblade.core.passes import PassBatch, PassData, PassModel, pass_view
from fedblade.core.phase import Phase
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass
from fedblade.core.terms import StepGradient
from fedblade.core.tree import Tree
from fedblade.core.views import Tap
from fedblade.core.work import Work

Trace = list[Mapping[str, Tensor]]
"""What each step logged, in order; tensors stay on the device until the clients have finished."""
Fields = dict[str, Any]
"""Tensors by name, in nested dictionaries and tuples."""


@dataclass(frozen=True)
class Clients(ABC):
    """How the work of one client is applied to the clients that are computed together."""

    axes: ClassVar[int]
    """How many client axes tensors have: 0 or 1."""
    problem: Problem

    @abstractmethod
    def map(self, function: Callable[[Fields], Any], fields: Fields) -> Any:
        """The value of `function` for each client; the tensors of `fields` belong to clients."""

    @abstractmethod
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
        """Features [batch, dim] of each client, and the outputs of the body's stages if they are tapped.

        Training updates the statistics in `buffers` in place.
        """

    @abstractmethod
    def read(self, samples: Samples, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inputs and labels of each client's batch."""

    @abstractmethod
    def join(self, common: Tree, by_client: Sequence[Tree]) -> Tree:
        """The trees of the clients as one; a leaf that a client's tree lacks is the common one."""

    @abstractmethod
    def numbers(self, by_client: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
        """The same numbers of all clients, for `map`."""

    @abstractmethod
    def with_axis(self, trees: Mapping[str, Tree]) -> dict[str, Tree]:
        """Trees made by `map`, with a client axis in front of every leaf."""

    @abstractmethod
    def batches(self, tasks: Sequence[ClientTask]) -> tuple[tuple[Batch, ...], ...]:
        """The batches of each phase on the training device. A batch leaves out the clients that have ended."""

    @abstractmethod
    def taking_part(self, received: Received, model: LocalModel, batch: Batch) -> tuple[Received, LocalModel]:
        """What the clients of a batch received, and views of their models."""

    @abstractmethod
    def at(self, position: int, received: Received, model: LocalModel) -> tuple[Received, LocalModel]:
        """One of the clients, as a group of its own."""

    @abstractmethod
    def is_common(self, leaf: Tensor) -> bool:
        """Whether all clients have the same tensor."""

    @abstractmethod
    def gradients(self, received: Received, work: Work, model: LocalModel) -> Callable[[Batch], StepGradient]:
        """The gradient of a step as a function of the batch: `step_gradient`, which an engine may have recorded."""

    @abstractmethod
    def train(
        self, received: Received, tasks: Sequence[ClientTask], phases: Sequence[Phase] | None = None
    ) -> tuple[LocalModel, Trace]:
        """The models after the local loop, and what its steps logged; phases None are the method's."""

    @abstractmethod
    def run_passes(self, passes: Sequence[DataPass], models: PassModel, data: PassData) -> dict[str, Tree]:
        """Totals of the passes over each client's samples, in float64; buffers are not touched."""

    def run_batch(self, passes: Sequence[DataPass], models: PassModel, batch: PassBatch) -> dict[str, Tree]:
        """What the passes give for one batch of each client. Of passes with the same name one is run."""
        inputs, mask = batch.inputs, batch.mask
        once = {data_pass.name: data_pass for data_pass in passes}
        names = ("params", "fixed", "client", "counts")
        fields: Fields = {name: getattr(models, name) for name in names} | {"labels": batch.labels}
        fields["anchor"] = models.anchor or models.params
        fields |= {} if mask is None else {"mask": mask}
        fields["features"], _ = self.features(models.params, models.fixed, models.buffers, inputs, mask, training=False)
        if models.anchor and any(data_pass.anchored for data_pass in passes):
            before = batch.anchor_features
            if before is None:
                before, _ = self.features(
                    models.anchor, models.fixed, models.anchor_buffers, inputs, mask, training=False
                )
            fields["anchor_features"] = before

        def one(client: Fields) -> dict[str, Tree]:
            view = pass_view(self.problem.network, models, client)
            return {name: data_pass.of(view) for name, data_pass in once.items()}

        made: dict[str, Tree] = self.map(one, fields)
        return made
