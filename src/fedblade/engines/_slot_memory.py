"""The tensors that slots live in, and the steps that are captured over the first of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedblade.core.gradient import Work
from fedblade.core.local import step
from fedblade.core.plan import Batch
from fedblade.core.problem import LocalModel, Received
from fedblade.core.tree import Tree
from fedblade.engines._capture import Captures, aside
from fedblade.engines._many_clients import ManyClients


@dataclass
class Slots:
    """Rows of a fixed number of slots, the plan of a round, and steps over the first slots, captured where they can be.

    Captures share one pool of memory: they run one after another and leave nothing in it.
    """

    received: Received
    row: LocalModel
    work: Work
    batch: Batch
    plan: Batch
    tick: Tensor
    logs: Tensor = field(default_factory=lambda: torch.zeros(0))
    names: tuple[str, ...] = ()
    _steps: dict[int, Callable[[], None]] = field(default_factory=dict)
    _captures: Captures = field(default_factory=Captures)

    @property
    def slots(self) -> int:
        """How many rows there are."""
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
        """One step of the first slots, at the current tick."""
        self._steps[size]()

    def capture(self, many: ManyClients, size: int) -> None:
        """Make the step of the first slots ready; this trains whatever is in them."""
        if size in self._steps:
            return
        batch = each_part(self.batch, lambda part: part[:size])
        entry = warmed(self, many, batch)
        if not self.names:
            self.names = tuple(sorted(entry))
            self.logs = torch.zeros(
                self.capacity, len(self.names), self.slots, device=self.tick.device, dtype=torch.float64
            )

        def logged() -> None:
            place = self.tick.clone()
            entry = _step(self, many, batch)
            values = torch.stack([entry[name].detach().to(torch.float64).expand(size) for name in self.names])
            self.logs[:, :, :size].index_copy_(0, place, values[None])

        if not self.tick.is_cuda:
            self._steps[size] = logged
            return
        with torch.enable_grad():
            self._steps[size], _ = self._captures.of(logged)

    def refresh(self, received: Received, plan: Batch) -> None:
        """Bring a round's plan, rate and server state to where the captured steps read them."""
        self.tick.zero_()
        ticks, _, width = plan.indices.shape
        if self.plan.mask is not None:
            self.plan.mask[:ticks].zero_()
        for into, of in in_pairs(self.plan, plan):
            into[:ticks, :, :width].copy_(of)
        if isinstance(self.received.lr, Tensor):
            self.received.lr.fill_(received.lr)
        for name, tree in {"": received.fixed, **received.server}.items():
            here = self.received.server[name] if name else self.received.fixed
            _copy(here, tree)

    def load_first(self, clients: int, received: Received) -> None:
        """Put the first clients of a group into the first slots, all at once."""
        self._fill(slice(0, clients), received, slice(0, clients))

    def load(self, slot: int, received: Received, client: int) -> None:
        """Put a client of a group into a slot: its model, its state, its counts, no momentum unless it brings some."""
        self._fill(slice(slot, slot + 1), received, slice(client, client + 1))

    def _fill(self, slots: slice, received: Received, clients: slice) -> None:
        for into in (self.received.anchor, self.row.params):
            _copy(_rows(into, slots), _rows(received.anchor, clients))
        for into in (self.received.buffers, self.row.buffers):
            _copy(_rows(into, slots), _rows(received.buffers, clients))
        self.received.task.counts[slots].copy_(received.task.counts[clients])
        torch._foreach_zero_([leaf[slots] for leaf in self.row.momentum.values()])
        _copy(_rows(self.row.momentum, slots), _rows(received.momentum or {}, clients))
        for name, tree in received.client.items():
            _copy(_rows(self.received.client[name], slots), _rows(tree, clients))

    def move(self, source: int, slot: int) -> None:
        """Let a client go on in another slot."""
        here, there = slice(source, source + 1), slice(slot, slot + 1)
        row, received = self.row, self.received
        own = (row.params, row.buffers, row.momentum, received.anchor, received.buffers)
        for tree in (*own, *received.client.values()):
            _copy(_rows(tree, there), _rows(tree, here))
        received.task.counts[there].copy_(received.task.counts[here])

    def store(self, slot: int, done: LocalModel, client: int) -> None:
        """Copy what a slot holds to a client's place."""
        here, there = slice(slot, slot + 1), slice(client, client + 1)
        for into, of in ((done.params, self.row.params), (done.buffers, self.row.buffers)):
            _copy(_rows(into, there), _rows(of, here))
        if done.momentum:
            _copy(_rows(done.momentum, there), _rows(self.row.momentum, here))


def warmed(held: Slots, many: ManyClients, batch: Batch) -> Mapping[str, Tensor]:
    """Run the step once, at the first tick, and say what it logs."""
    # The last round may have left it behind the end of the plan.
    held.tick.zero_()
    if not held.tick.is_cuda:
        return _step(held, many, batch)
    with torch.enable_grad():
        entry: Mapping[str, Tensor] = aside(lambda: _step(held, many, batch))
    held.tick.zero_()
    return entry


def _step(held: Slots, many: ManyClients, batch: Batch) -> Mapping[str, Tensor]:
    """Pick the batches of the current tick, train on them and count the tick."""
    for into, of in in_pairs(held.batch, held.plan):
        into.copy_(of.index_select(0, held.tick)[0])
    entry = step(many.problem, many, held.received, held.row, held.work, batch)
    held.tick.add_(1)
    return entry


def each_part(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """A batch whose tensors are changed, each by itself."""
    draws, noise, mask = (None if part is None else change(part) for part in (batch.draws, batch.noise, batch.mask))
    return Batch(change(batch.indices), draws, noise, None, mask)


def in_pairs(one: Batch, other: Batch) -> list[tuple[Tensor, Tensor]]:
    """The tensors that both batches have, in pairs."""
    parts = ([each.indices, each.mask, each.draws, each.noise] for each in (one, other))
    return [(a, b) for a, b in zip(*parts, strict=True) if a is not None and b is not None]


def _rows(tree: Tree, rows: slice) -> Tree:
    return {name: leaf.detach()[rows] for name, leaf in tree.items()}


def _copy(into: Tree, of: Tree) -> None:
    if of:
        with torch.no_grad():
            torch._foreach_copy_([into[name] for name in of], list(of.values()))
