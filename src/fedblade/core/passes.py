"""Passes over data in evaluation mode: what they measure, and what they see of a batch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from fedblade.core.network import Network
from fedblade.core.problem import LocalModel, Received
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree
from fedblade.core.views import HeadOutput, StepView, Teacher

PASS_BATCH = 128
"""Samples per batch of a pass. With batch statistics it is part of the result, so it is not a setting."""
GPU_BATCH = 1024
"""Samples per batch on a GPU: smaller batches would leave it idle."""
SMALL_INPUTS_BATCH = 512
"""Samples per batch on a CPU where inputs are small: with 128 digits the calls take longer than the arithmetic."""
_SMALL_INPUTS = 2**18
"""Bytes of inputs that count as small. The outputs of a layer may have a hundred times as many."""


@dataclass(frozen=True)
class PassModel:
    """A model that passes measure, and what their views show beside it: states, class counts and the round.

    `logits` is a prediction other than the head's, such as a client's own. `anchor` and `anchor_buffers` are the
    received model, where the model was trained since. In a group all tensors but those of `server` have a client axis.
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
    def of_clients(received: Received, model: LocalModel) -> "PassModel":
        """The models that clients have trained, or still have as they were received."""
        return PassModel(
            model.params,
            model.buffers,
            received.fixed,
            received.counts,
            received.server,
            received.client,
            received.round,
        )


@dataclass(frozen=True)
class PassData:
    """The samples of a pass: those at a client's `indices`, augmented by the client's `draws` if there are any.

    `anchor_features [samples, dim]` are those of the received model, if they are known already; all clients then have
    the same indices.
    """

    samples: Samples
    indices: Sequence[Tensor]
    draws: Sequence[Tensor | None] | None = None
    anchor_features: Tensor | None = None

    def anchor_features_at(self, positions: Tensor) -> Tensor | None:
        """Known features of the received model at these positions of a client's indices, [*positions, dim]."""
        return None if self.anchor_features is None else self.anchor_features[positions]

    @cached_property
    def starts(self) -> list[int]:
        """Where the samples of each client begin in `all_indices`."""
        return [0, *accumulate(len(indices) for indices in self.indices)]

    @cached_property
    def all_indices(self) -> Tensor:
        """The indices of all clients, one client after another."""
        return torch.cat(list(self.indices))

    @cached_property
    def all_draws(self) -> Tensor | None:
        """The draws of all clients, one client after another, if there are any."""
        draws = [drawn for drawn in self.draws or () if drawn is not None]
        return torch.cat(draws) if draws else None


@dataclass(frozen=True)
class PassBatch:
    """A batch of each client: inputs, labels, which samples are real, and what is known of the received model."""

    inputs: Tensor
    labels: Tensor
    mask: Tensor | None = None
    anchor_features: Tensor | None = None


def batch_of_one_model(network: Network, samples: Samples) -> int:
    """Samples per batch of a pass with one model. With batch statistics there is no choice."""
    if network.takes_batch_statistics:
        return PASS_BATCH
    if samples.labels.is_cuda:
        return GPU_BATCH
    sample_bytes = samples.inputs[:1].numel() * samples.dtype.itemsize
    return SMALL_INPUTS_BATCH if SMALL_INPUTS_BATCH * sample_bytes <= _SMALL_INPUTS else PASS_BATCH


def chunks(indices: Tensor, size: int = PASS_BATCH) -> list[Tensor]:
    """Indices cut into batches of `size`; a last batch of one joins the batch before it, for batch statistics' sake."""
    parts = list(torch.split(indices, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def pass_view(network: Network, models: PassModel, client: Mapping[str, Any]) -> StepView:
    """What a pass sees of one batch of one client; `anchor_features` are of the received model, where wanted."""
    fields = dict(client)
    before = fields.pop("anchor_features", None)
    if before is not None:
        fields["teachers"] = {Teacher(): network.teacher_output(fields["anchor"], fields["fixed"], before)}
    view = network.view(**fields, server=models.server, round=models.round)
    if models.logits is None:
        return view
    return replace(view, output=HeadOutput(models.logits(view), view.output.projected))


def passes_of(sums: Sequence[Sum]) -> list[DataPass]:
    """The passes over the client's training data that the sums need, each name once."""
    return _each_once(data_pass for declared in sums for data_pass in declared.passes)


def measured_passes(sums: Sequence[Sum]) -> list[DataPass]:
    """The passes over measured samples that the sums need, each name once."""
    return _each_once(data_pass for declared in sums for data_pass in declared.measured)


def _each_once(passes: Iterable[DataPass]) -> list[DataPass]:
    return list({data_pass.name: data_pass for data_pass in passes}.values())
