"""Passes over the data of many clients at once, each with its own model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedblade.core.local import Row
from fedblade.core.passes import chunks
from fedblade.core.problem import Received
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import State, Tree
from fedblade.core.views import StepView
from fedblade.engines._many_clients import ManyClients, gather

SEATS = 16
"""Batches that pass at a time, of whatever clients: one shape for all, so that libraries plan once."""


@dataclass(frozen=True)
class Item:
    """A batch of a client: its place in the group and places in the client's own order of samples."""

    place: int
    chunk: Tensor


def group_passes(
    many: ManyClients, received: Sequence[Received], row: Row, sums: Sequence[Sum]
) -> list[dict[str, Tree]]:
    """What the passes of the sums add up for each client; plain and augmented ones apart."""
    wanted = {each.name: each for declared in sums for each in declared.passes}
    totals: list[dict[str, Tree]] = [{} for _ in received]
    for augmented in (False, True):
        passes = [each for each in wanted.values() if each.augmented == augmented]
        if passes:
            _run(many, received, row, passes, totals, augmented=augmented)
    return totals


@torch.no_grad()
def _run(
    many: ManyClients,
    received: Sequence[Received],
    row: Row,
    passes: Sequence[DataPass],
    totals: list[dict[str, Tree]],
    *,
    augmented: bool,
) -> None:
    items = [
        Item(place, chunk)
        for place, each in enumerate(received)
        for chunk in chunks(torch.arange(len(each.task.indices), device=each.task.indices.device))
    ]
    width = max(2, *(len(item.chunk) for item in items))
    for start in range(0, len(items), SEATS):
        some = items[start : start + SEATS]
        # Empty seats repeat the first item; what they add up is left out.
        seats = some + [some[0]] * (SEATS - len(some)) if len(items) > SEATS else some
        found = _pass(many, received, row, passes, seats, width, augmented=augmented)
        for number, item in enumerate(some):
            own = totals[item.place]
            for name, tree in found.items():
                mine = {key: leaf[number].to(torch.float64) for key, leaf in tree.items()}
                known = own.get(name)
                own[name] = mine if known is None else {key: known[key] + leaf for key, leaf in mine.items()}


def _pass(
    many: ManyClients,
    received: Sequence[Received],
    row: Row,
    passes: Sequence[DataPass],
    items: Sequence[Item],
    width: int,
    *,
    augmented: bool,
) -> dict[str, Tree]:
    """Every pass over one batch of each item."""
    at = [torch.cat([item.chunk, item.chunk[:1].expand(width - len(item.chunk))]) for item in items]
    device = at[0].device
    sizes = torch.tensor([len(item.chunk) for item in items], device=device)
    mask = torch.arange(width, device=device) < sizes[:, None]
    tasks = [received[item.place].task for item in items]
    indices = torch.stack([task.indices[places] for task, places in zip(tasks, at, strict=True)])
    drawn = [task.pass_draws[places] for task, places in zip(tasks, at, strict=True) if task.pass_draws is not None]
    places = torch.tensor([item.place for item in items], device=device)
    params, buffers = ({n: leaf[places] for n, leaf in tree.items()} for tree in (row.params, row.buffers))
    inputs, labels = gather(many.problem.samples, indices, torch.stack(drawn) if augmented and drawn else None)
    full = bool(min(len(item.chunk) for item in items) == width)
    real = None if full else mask
    features, _ = many.features(params, buffers, inputs, real, training=False)
    mine = [received[item.place] for item in items]
    return _views(many, mine, params, features, labels, real, passes)


def _views(
    many: ManyClients,
    received: Sequence[Received],
    params: Tree,
    features: Tensor,
    labels: Tensor,
    mask: Tensor | None,
    passes: Sequence[DataPass],
) -> dict[str, Tree]:
    """Every pass at the views of all items."""
    network, first = many.problem.network, received[0]
    client: State = {
        name: {key: torch.stack([each.client[name][key] for each in received]) for key in tree}
        for name, tree in first.client.items()
    }
    counts = torch.stack([each.task.counts for each in received])

    def one(z: Tensor, y: Tensor, params: Tree, own: State, held: Tensor, real: Tensor | None) -> dict[str, Tree]:
        view = StepView(
            params=params,
            anchor=params,
            fixed=first.fixed,
            head=network.head,
            features=z,
            output=network.output(params, first.fixed, z),
            labels=y,
            counts=held,
            server=first.server,
            client=own,
            round=first.task.round,
            mask=real,
        )
        return {each.name: each.of(view) for each in passes}

    axes = (0, 0, 0, 0, 0, None if mask is None else 0)
    found: dict[str, Tree] = torch.func.vmap(one, in_dims=axes)(features, labels, params, client, counts, mask)
    return found
