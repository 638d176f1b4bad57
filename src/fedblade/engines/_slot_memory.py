"""The tensors of slots, and the captured steps of the first slots."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.local import step
from fedblade.core.plan import Batch
from fedblade.core.problem import LocalModel, Received
from fedblade.core.tree import Tree
from fedblade.core.work import Work
from fedblade.engines._capture import Captures, on_side_stream


@dataclass
class Slots:
    """The models of a fixed number of slots, the plan of a round, and steps of the first slots, captured on a GPU.

    `plan` has the batches of all ticks, `batch` those of the current one, and `tick` its number. `logs` is
    [ticks, names, slots]. Captures share one pool of memory: they run one after another and leave nothing in it.
    """

    received: Received
    model: LocalModel
    work: Work
    batch: Batch
    plan: Batch
    tick: Tensor
    logs: Tensor = field(default_factory=lambda: torch.zeros(0))
    names: tuple[str, ...] = ()
    _steps: dict[int, Callable[[], None]] = field(default_factory=dict)
    _captures: Captures = field(default_factory=Captures)

    @property
    def num_slots(self) -> int:
        """How many slots there are."""
        return self.batch.indices.shape[0]

    @property
    def width(self) -> int:
        """Samples of a batch, padding included."""
        return self.batch.indices.shape[1]

    @property
    def capacity(self) -> int:
        """Ticks that the plan has room for."""
        return len(self.plan.indices)

    @property
    def sizes(self) -> list[int]:
        """Numbers of slots that a step was captured for."""
        return sorted(self._steps)

    def replay(self, size: int) -> None:
        """One step of the first `size` slots, at the current tick."""
        self._steps[size]()

    def capture(self, clients: Clients, size: int) -> None:
        """Make the step of the first `size` slots ready; this trains the models that are in them."""
        if size in self._steps:
            return
        batch = map_batch(self.batch, lambda part: part[:size])
        entry = warm_up(self, clients, batch)
        if not self.names:
            self.names = tuple(sorted(entry))
            self.logs = torch.zeros(
                self.capacity, len(self.names), self.num_slots, device=self.tick.device, dtype=torch.float64
            )

        def step_and_log() -> None:
            tick = self.tick.clone()
            entry = _step(self, clients, batch)
            values = torch.stack([entry[name].detach().to(torch.float64).expand(size) for name in self.names])
            self.logs[:, :, :size].index_copy_(0, tick, values[None])

        if not self.tick.is_cuda:
            self._steps[size] = step_and_log
            return
        with torch.enable_grad():
            self._steps[size], _ = self._captures.capture(step_and_log)

    def refresh(self, received: Received, plan: Batch) -> None:
        """Copy a round's plan, learning rate and server state into the tensors that captured steps read."""
        self.tick.zero_()
        ticks, _, width = plan.indices.shape
        if self.plan.mask is not None:
            self.plan.mask[:ticks].zero_()
        for target, source in paired_tensors(self.plan, plan):
            target[:ticks, :, :width].copy_(source)
        if isinstance(self.received.lr, Tensor):
            self.received.lr.fill_(received.lr)
        # The client axis of fixed tensors repeats one tensor.
        _copy(_part(self.received.fixed, slice(1)), _part(received.fixed, slice(1)))
        for name, tree in received.server.items():
            _copy(self.received.server[name], tree)

    def load_first(self, clients: int, received: Received) -> None:
        """Put the first clients of a group into the first slots, all at once."""
        self._fill(slice(0, clients), received, slice(0, clients))

    def load(self, slot: int, received: Received, client: int) -> None:
        """Put a client of a group into a slot: its model, state and counts; momentum is 0 unless it has some."""
        self._fill(slice(slot, slot + 1), received, slice(client, client + 1))

    def _fill(self, slots: slice, received: Received, clients: slice) -> None:
        for target in (self.received.anchor, self.model.params):
            _copy(_part(target, slots), _part(received.anchor, clients))
        for target in (self.received.buffers, self.model.buffers):
            _copy(_part(target, slots), _part(received.buffers, clients))
        self.received.counts[slots].copy_(received.counts[clients])
        torch._foreach_zero_([leaf[slots] for leaf in self.model.momentum.values()])
        _copy(_part(self.model.momentum, slots), _part(received.momentum or {}, clients))
        for name, tree in received.client.items():
            _copy(_part(self.received.client[name], slots), _part(tree, clients))

    def move(self, source: int, slot: int) -> None:
        """Move a client from the slot `source` to another one."""
        here, there = slice(source, source + 1), slice(slot, slot + 1)
        model, received = self.model, self.received
        trees = (model.params, model.buffers, model.momentum, received.anchor, received.buffers)
        for tree in (*trees, *received.client.values()):
            _copy(_part(tree, there), _part(tree, here))
        received.counts[there].copy_(received.counts[here])

    def store(self, slot: int, trained: LocalModel, client: int) -> None:
        """Copy the model in a slot to the client's position in `trained`."""
        here, there = slice(slot, slot + 1), slice(client, client + 1)
        _copy(_part(trained.params, there), _part(self.model.params, here))
        _copy(_part(trained.buffers, there), _part(self.model.buffers, here))
        if trained.momentum:
            _copy(_part(trained.momentum, there), _part(self.model.momentum, here))


def warm_up(slots: Slots, clients: Clients, batch: Batch) -> Mapping[str, Tensor]:
    """Run the step once, at the first tick, and return what it logs."""
    # After the last round the tick may be behind the end of the plan.
    slots.tick.zero_()
    if not slots.tick.is_cuda:
        return _step(slots, clients, batch)
    with torch.enable_grad():
        entry: Mapping[str, Tensor] = on_side_stream(lambda: _step(slots, clients, batch))
    slots.tick.zero_()
    return entry


def _step(slots: Slots, clients: Clients, batch: Batch) -> Mapping[str, Tensor]:
    """Take the batches of the current tick, train on them and count the tick."""
    for target, source in paired_tensors(slots.batch, slots.plan):
        target.copy_(source.index_select(0, slots.tick)[0])
    entry = step(clients, slots.received, slots.model, slots.work, batch)
    slots.tick.add_(1)
    return entry


def map_batch(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """A batch with `change` applied to each of its tensors."""
    draws, noise, mask = (None if part is None else change(part) for part in (batch.draws, batch.noise, batch.mask))
    return Batch(change(batch.indices), draws, noise, None, mask)


def paired_tensors(one: Batch, other: Batch) -> list[tuple[Tensor, Tensor]]:
    """The tensors that both batches have, in pairs."""
    parts = ([batch.indices, batch.mask, batch.draws, batch.noise] for batch in (one, other))
    return [(a, b) for a, b in zip(*parts, strict=True) if a is not None and b is not None]


def _part(tree: Tree, clients: slice) -> Tree:
    """Views of some positions of the client axis."""
    return {name: leaf.detach()[clients] for name, leaf in tree.items()}


def _copy(target: Tree, source: Tree) -> None:
    if source:
        with torch.no_grad():
            torch._foreach_copy_([target[name] for name in source], list(source.values()))
