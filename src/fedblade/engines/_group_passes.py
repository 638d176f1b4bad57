"""Passes over the data of many clients at once, each with its own model or all with the same one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedblade.core.network import BODY
from fedblade.core.passes import PassModel, pass_view, passes_of, takes_batch_statistics
from fedblade.core.plan import ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.samples import Samples
from fedblade.core.sums import DataPass, Sum
from fedblade.core.tree import Tree
from fedblade.engines._capture import UNREAD
from fedblade.engines._group import held_once, is_common
from fedblade.engines._many_clients import ManyClients, gather
from fedblade.engines._portions import Data, Item, Portion, items_of, portions_of
from fedblade.engines._replay import Replays

_TENSORS = ("params", "buffers", "fixed", "client", "counts", "server", "anchor", "anchor_buffers")
"""The fields of a `PassModel` that are made of tensors."""
SEATS = 16
"""Batches that pass at a time on a GPU, of whatever clients: one shape for all, so that libraries plan once."""
CPU_SEATS = 32
"""The same on a CPU, where fewer may pass and batches of one size pass together."""
MOST_BYTES = 2**28
"""Bytes that the passes of one time may give: covariances of classes are large."""


@dataclass(frozen=True)
class GroupPasses:
    """Runs passes for groups; remembers how many bytes the passes of a batch give, and what a GPU has captured."""

    many: ManyClients
    _replays: Replays = field(default_factory=Replays)
    _sizes: dict[tuple[str, ...], int] = field(default_factory=dict)

    def of_sums(
        self, tasks: Sequence[ClientTask], received: Received, params: Tree, buffers: Tree, sums: Sequence[Sum]
    ) -> dict[str, Tree]:
        """What the passes of the sums add up over the training data of each client, with a client axis."""
        wanted = passes_of(sums)
        if not wanted:
            return {}
        fixed = {name: leaf.expand(len(tasks), *leaf.shape) for name, leaf in received.fixed.items()}
        models = replace(PassModel.of_client(received, LocalModel(params, buffers, {})), fixed=fixed)
        data = Data(self.many.problem.samples, [task.indices for task in tasks])
        shaken = replace(data, draws=[task.pass_draws for task in tasks])
        plain, augmented = ([each for each in wanted if each.augmented == kind] for kind in (False, True))
        return self.run(plain, models, data) | (self.run(augmented, models, shaken) if augmented else {})

    @torch.no_grad()
    def run(self, passes: Sequence[DataPass], models: PassModel, data: Data) -> dict[str, Tree]:
        """What the passes add up over the samples of each client, in float64 and with a client axis."""
        items = items_of(data.indices) if passes else []
        if not items:
            return {}
        totals: dict[str, Tree] = {}
        on_gpu = data.samples.labels.is_cuda
        least = 2 if self.many.problem.network.skips_singletons else 1
        for portion in portions_of(items, self._seats(passes, models, data, items[0]), least, fixed=on_gpu):
            found = self._pass(passes, models, data, portion)
            for name, tree in found.items():
                _add(totals.setdefault(name, _zeros(tree, len(data.indices))), tree, portion.items)
        return totals

    def _seats(self, passes: Sequence[DataPass], models: PassModel, data: Data, item: Item) -> int:
        """Batches that pass at a time, fewer where the passes give much: two samples tell how much."""
        key = tuple(each.name for each in passes)
        if key not in self._sizes:
            some = Portion([replace(item, size=min(2, item.size))], 2, 1)
            found = self._at(passes, models, data.samples, self._given(models, replace(data, draws=None), some))
            self._sizes[key] = sum(leaf.nbytes for tree in found.values() for leaf in tree.values())
        most = SEATS if data.samples.labels.is_cuda else CPU_SEATS
        return min(most, max(1, MOST_BYTES // max(1, self._sizes[key])))

    def _pass(self, passes: Sequence[DataPass], models: PassModel, data: Data, portion: Portion) -> dict[str, Tree]:
        """Every pass over one batch of each item, with an axis of items in front."""
        given = self._given(models, data, portion)
        read_by_host = data.samples.reader is not None and given["draws"] is not None
        if not data.order.is_cuda or read_by_host or any(each.by_round for each in passes):
            return self._at(passes, models, data.samples, given)
        key = (id(data.samples.labels), models.logits, tuple(each.of for each in passes))
        found: dict[str, Tree] = self._replays.call(
            key, lambda held: self._at(passes, replace(models, round=UNREAD), data.samples, held), given
        )
        return found

    def _given(self, models: PassModel, data: Data, portion: Portion) -> dict[str, Any]:
        """What a portion is made of, in tensors: models, whose they are, samples, their draws, and which are real."""
        device, items = data.order.device, portion.seated
        at = torch.from_numpy(portion.samples(data.starts)).to(device)
        whole = [item.place for item in items] == list(range(len(models.counts)))
        sizes = torch.tensor([item.size for item in items])[:, None]
        return {
            "models": {name: getattr(models, name) for name in _TENSORS},
            "places": None if whole else torch.tensor([item.place for item in items]).to(device),
            "indices": data.order[at],
            "draws": None if data.drawn is None else data.drawn[at],
            "real": None if portion.is_full else (torch.arange(portion.width) < sizes).to(device),
        }

    def _at(
        self, passes: Sequence[DataPass], models: PassModel, samples: Samples, given: Mapping[str, Any]
    ) -> dict[str, Tree]:
        """Every pass over what a portion is made of; `models` says how they predict, and in which round."""
        mine = _rows(replace(models, **given["models"]), given["places"])
        inputs, labels = gather(samples, given["indices"], given["draws"])
        complete = self.many.problem.network.complete
        features = self._features(complete(mine.params, mine.fixed), mine.buffers, inputs, given["real"])
        seen = {"features": features, "labels": labels} | ({} if given["real"] is None else {"mask": given["real"]})
        if any(each.anchored for each in passes):
            received = complete(mine.anchor, mine.fixed)
            seen["anchor_features"] = self._features(received, mine.anchor_buffers, inputs, given["real"])
        return _views(self.many, mine, seen, passes)

    def _features(self, params: Tree, buffers: Tree, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """Features [items, batch, dim]; a body that all have in common takes every sample at once."""
        network = self.many.problem.network
        body = {name: leaf for name, leaf in params.items() if name.startswith(BODY)}
        if takes_batch_statistics(network) or not all(map(is_common, (body | buffers).values())):
            return self.many.features(body, buffers, inputs, mask, training=False)[0]
        params, buffers = ({name: leaf[0] for name, leaf in tree.items()} for tree in (body, buffers))
        return self.many.of_one(params, buffers, inputs.flatten(0, 1)).reshape(*inputs.shape[:2], -1)


def _rows(models: PassModel, places: Tensor | None) -> PassModel:
    """The clients at `places`, which may repeat; None is everybody once."""
    if places is None:
        return models

    def picked(tree: Mapping[str, Tensor]) -> Tree:
        return {
            name: leaf[:1].expand(len(places), *leaf.shape[1:]) if is_common(leaf) else leaf[places]
            for name, leaf in tree.items()
        }

    return replace(
        models,
        params=picked(models.params),
        buffers=picked(models.buffers),
        fixed=picked(models.fixed),
        client={name: picked(tree) for name, tree in models.client.items()},
        counts=models.counts[places],
        anchor=picked(models.anchor),
        anchor_buffers=picked(models.anchor_buffers),
    )


def _views(
    many: ManyClients, models: PassModel, seen: Mapping[str, Tensor], passes: Sequence[DataPass]
) -> dict[str, Tree]:
    """Every pass at the views of all items; `seen` has features, labels, the mask and what the received models say."""
    network = many.problem.network
    by_client = {name: getattr(models, name) for name in ("params", "fixed", "client", "counts", "anchor")}
    held, axes = held_once({"model": by_client, "seen": dict(seen)})

    def one(client: dict[str, Any]) -> dict[str, Tree]:
        batch = {"mask": None, "anchor_features": None} | client["seen"]
        view = pass_view(network, replace(models, **client["model"]), **batch)
        return {each.name: each.of(view) for each in passes}

    found: dict[str, Tree] = torch.func.vmap(one, in_dims=(axes,))(held)
    return found


def _zeros(tree: Tree, clients: int) -> Tree:
    return {key: leaf.new_zeros(clients, *leaf.shape[1:], dtype=torch.float64) for key, leaf in tree.items()}


def _add(totals: Tree, tree: Tree, items: Sequence[Item]) -> None:
    """Add each batch to its client, one after another, so that the order never depends on a device."""
    for key, leaf in tree.items():
        for number, item in enumerate(items):
            totals[key][item.place].add_(leaf[number])
