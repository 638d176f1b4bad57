"""Passes over data in evaluation mode: prototypes on a client, metrics on a test set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedblade.core.gradient import teacher_output
from fedblade.core.network import Network
from fedblade.core.problem import LocalModel, Problem, Received
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree, tree_map
from fedblade.core.views import StepView, Teacher

Features = Callable[[Tree, Tree, Tensor], Tensor]
"""Features [batch, dim] in evaluation mode, of (params, buffers, inputs)."""
PASS_BATCH = 128
"""Samples per batch of a pass. With batch statistics it is part of the result, so it is not a setting."""


@dataclass(frozen=True)
class PassModel:
    """A model that passes measure, and what their views show beside it: states, class counts and the round.

    `logits` is a prediction other than the head's, such as a client's own. `anchor` and `anchor_buffers` are the
    received model, where the model was trained since. Engines may put a client axis in front of all tensors but those
    of `server`.
    """

    params: Tree
    buffers: Tree
    fixed: Tree
    counts: Tensor
    server: State = field(default_factory=dict)
    client: State = field(default_factory=dict)
    round: int = 0
    logits: Callable[[StepView], Tensor] | None = None
    anchor: Tree = field(default_factory=dict)
    anchor_buffers: Tree = field(default_factory=dict)

    @staticmethod
    def of_client(received: Received, model: LocalModel) -> "PassModel":
        """The model that a client has trained, or still has as it was received."""
        return PassModel(
            model.params,
            model.buffers,
            received.fixed,
            received.task.counts,
            received.server,
            received.client,
            received.task.round,
        )


@dataclass(frozen=True)
class PassData:
    """The samples of a pass: those at `indices`, augmented by `draws` if there are any."""

    samples: Samples
    indices: Tensor
    draws: Tensor | None = None


def takes_batch_statistics(network: Network) -> bool:
    """Whether normalisation uses the batch in a pass too, so that features depend on the other samples of the batch."""
    return any(isinstance(layer, _BatchNorm) and layer.running_mean is None for layer in network.body.modules())


def chunks(indices: Tensor, size: int = PASS_BATCH) -> list[Tensor]:
    """Indices cut into batches of `size`; a last batch of one joins the batch before it, for batch statistics' sake."""
    parts = list(torch.split(indices, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@torch.no_grad()
def run_passes(
    passes: Sequence[DataPass],
    network: Network,
    model: PassModel,
    data: PassData,
    *,
    features: Features | None = None,
    batch: int = PASS_BATCH,
) -> dict[str, Tree]:
    """Add up every pass over the samples, with one forward pass per batch. Buffers are not touched.

    Of passes with the same name one is run. `features` is another way to compute the network's features. A `batch` of
    another size changes nothing but rounding where `takes_batch_statistics` is false.
    """
    passes = list({data_pass.name: data_pass for data_pass in passes}.values())
    anchored = bool(model.anchor) and any(data_pass.anchored for data_pass in passes)
    features = features or network.eval_features
    totals: dict[str, Tree] = {}
    for positions in chunks(torch.arange(len(data.indices), device=data.indices.device), batch) if passes else ():
        inputs, labels, mask = _batch(network, data, positions)
        seen = features(network.complete(model.params, model.fixed), model.buffers, inputs)
        seen_before = None
        if anchored:
            received = network.complete(model.anchor, model.fixed)
            seen_before = network.eval_features(received, model.anchor_buffers, inputs)
        view = pass_view(network, model, labels, seen, mask, seen_before)
        for data_pass in passes:
            added = tree_map(lambda leaf: leaf.to(torch.float64), data_pass.of(view))
            total = totals.get(data_pass.name)
            totals[data_pass.name] = added if total is None else tree_map(torch.add, total, added)
    return totals


def _batch(network: Network, data: PassData, positions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Inputs, labels and mask of the samples at these positions of the data.

    Batch statistics need two values: a sample alone is doubled, and the copy is masked.
    """
    samples, mask = data.samples, None
    if len(positions) == 1 and network.skips_singletons:
        positions, mask = positions.repeat(2), torch.tensor([1.0, 0.0]).to(samples.scale)
    draws = None if data.draws is None else data.draws[positions]
    return *samples.batch(data.indices[positions], draws), mask


def pass_view(
    network: Network,
    model: PassModel,
    labels: Tensor,
    features: Tensor,
    mask: Tensor | None,
    anchor_features: Tensor | None,
) -> StepView:
    """What a pass sees of one batch and one model; `anchor_features` are those of the received model, if wanted."""
    teachers = {}
    if anchor_features is not None:
        teachers[Teacher()] = teacher_output(network, model.anchor, model.fixed, anchor_features)
    view = StepView(
        params=model.params,
        anchor=model.anchor or model.params,
        fixed=model.fixed,
        head=network.head,
        features=features,
        output=network.output(model.params, model.fixed, features),
        labels=labels,
        counts=model.counts,
        server=model.server,
        client=model.client,
        round=model.round,
        mask=mask,
        teachers=teachers,
    )
    if model.logits is None:
        return view
    return replace(view, output=replace(view.output, logits=model.logits(view)))


def passes_of(sums: Sequence[Sum]) -> list[DataPass]:
    """The passes over the client's training data that the sums need, each name once."""
    return list({data_pass.name: data_pass for declared in sums for data_pass in declared.passes}.values())


def client_passes(problem: Problem, received: Received, model: LocalModel, sums: Sequence[Sum]) -> dict[str, Tree]:
    """Totals of the passes that the sums need over the client's training data; augmented passes run by themselves."""
    task, totals = received.task, dict[str, Tree]()
    for augmented in (False, True):
        passes = [data_pass for data_pass in passes_of(sums) if data_pass.augmented == augmented]
        if passes:
            data = PassData(problem.samples, task.indices, task.pass_draws if augmented else None)
            totals |= run_passes(passes, problem.network, PassModel.of_client(received, model), data)
    return totals
