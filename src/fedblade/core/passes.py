"""Passes over data in evaluation mode: prototypes on a client, metrics on a test set."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedblade.core.network import Network
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass
from fedblade.core.tree import State, Tree, tree_map, tree_select
from fedblade.core.views import StepView, Teacher, TeacherOutput

Features = Callable[[Tree, Tree, Tensor], Tensor]
"""Features [batch, dim] in evaluation mode, of (params, buffers, inputs)."""
PASS_BATCH = 128
"""Samples per batch of a pass. With batch statistics it is part of the result, so it is not a setting."""


def takes_batch_statistics(network: Network) -> bool:
    """Whether normalisation uses the batch in a pass too, so that its features depend on what is beside a sample."""
    return any(isinstance(layer, _BatchNorm) and layer.running_mean is None for layer in network.body.modules())


def chunks(indices: Tensor, size: int = PASS_BATCH) -> list[Tensor]:
    """Indices cut into batches of `size`; a last batch of one joins its neighbour, for batch statistics' sake."""
    parts = list(torch.split(indices, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@torch.no_grad()
def run_passes(
    passes: Sequence[DataPass],
    network: Network,
    model: tuple[Tree, Tree, Tree],
    samples: Samples,
    indices: Tensor,
    *,
    counts: Tensor,
    draws: Tensor | None = None,
    server: State | None = None,
    client: State | None = None,
    round_: int = 0,
    logits: Callable[[StepView], Tensor] | None = None,
    features: Features | None = None,
    batch: int = PASS_BATCH,
    anchor: tuple[Tree, Tree] | None = None,
) -> dict[str, Tree]:
    """Add up every pass over the samples at `indices`, with one forward per batch. Buffers are not touched.

    Of passes with one name only one is run. `logits` is a prediction other than the head's, such as a client's own,
    `features` another way to the same features than the network's. Another `batch` than the usual changes nothing but
    rounding where `takes_batch_statistics` is false. `anchor` is the received model (params, buffers), for passes of a
    trained one.
    """
    passes = list({each.name: each for each in passes}.values())
    params, buffers, fixed = model
    teacher = anchor if any(each.anchored for each in passes) else None
    totals: dict[str, Tree] = {}
    places = chunks(torch.arange(len(indices), device=indices.device), batch) if passes else []
    for chunk in places:
        # Batch statistics need two values: a lone sample is doubled, and the copy masked out.
        alone = len(chunk) == 1 and network.skips_singletons
        place, mask = (chunk.repeat(2), torch.tensor([1.0, 0.0]).to(samples.scale)) if alone else (chunk, None)
        inputs, labels = samples.batch(indices[place], None if draws is None else draws[place])
        found = (features or network.eval_features)(network.complete(params, fixed), buffers, inputs)
        before = None
        if teacher is not None:
            before = (teacher[0], network.eval_features(network.complete(teacher[0], fixed), teacher[1], inputs))
        view = StepView(
            params=params,
            anchor=params if anchor is None else anchor[0],
            fixed=fixed,
            head=network.head,
            features=found,
            output=network.output(params, fixed, found),
            labels=labels,
            counts=counts,
            server=server or {},
            client=client or {},
            round=round_,
            mask=mask,
            teachers={} if before is None else {Teacher(): taught(network, before[0], fixed, before[1])},
        )
        if logits is not None:
            view = replace(view, output=replace(view.output, logits=logits(view)))
        for each in passes:
            part = tree_map(lambda leaf: leaf.to(torch.float64), each.of(view))
            known = totals.get(each.name)
            totals[each.name] = part if known is None else tree_map(torch.add, known, part)
    return totals


def taught(network: Network, params: Tree, fixed: Tree, features: Tensor) -> TeacherOutput:
    """What a model says of a batch with these features."""
    whole = fixed | tree_select(params, fixed)
    output = network.output(params, whole, features)
    return TeacherOutput(features, output, network.head.raw_logits(params, whole, output))
