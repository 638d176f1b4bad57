"""The plan of a client's round as data: on which batches it trains, with which augmentation draws.

Everything is drawn from (seed, round, client), never from a position in a cohort. So engines, group sizes and restarts
cannot change what a client sees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedblade.core.lengths import LastBatch, PhasePlan, Workload, epoch_batches, phase_epochs, phase_steps
from fedblade.core.partial_work import finished_phases, finished_share
from fedblade.core.streams import Stream, Streams

IntArray = npt.NDArray[np.int64]
Weighting = Literal["samples", "uniform", "batches"]


class Shards(Protocol):
    """Which samples a client holds in a round."""

    def indices(self, client: int, round_index: int) -> IntArray:
        """Training samples of a client."""

    def counts(self, client: int, round_index: int) -> IntArray:
        """Training samples per class [classes]."""

    def removed(self, client: int, round_index: int) -> int | None:
        """The class whose samples the client has and may not use in this round, if there is one."""


@dataclass(frozen=True)
class Batch:
    """Sample indices of one step, and draws for each sample: `draws` for the augmentation, `noise` for the method.

    `then` is the second batch of a step that takes two. Engines may put a client axis in front, [clients, batch]. Then
    `mask` is 1 for real samples and 0 for padding (None: all are real), and clients without a step left are missing.
    """

    indices: Tensor
    draws: Tensor | None
    noise: Tensor | None = None
    then: "Batch | None" = None
    mask: Tensor | None = None

    def on(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        draws, noise, mask = (None if part is None else part.to(device) for part in (self.draws, self.noise, self.mask))
        then = None if self.then is None else self.then.on(device)
        return Batch(self.indices.to(device), draws, noise, then, mask)


@dataclass(frozen=True)
class ClientTask:
    """The work of one client in one round. `phases` has the batches of each training phase in order.

    Batches and `counts` are on the CPU until an engine moves them, so that many clients can be moved at once. Numbers
    that only some rounds need are drawn at their first use. `erased` is a class whose samples the client has and may
    not use in this round.
    """

    client: int
    round: int
    num_samples: int
    counts: Tensor
    weight: float
    phases: tuple[tuple[Batch, ...], ...]
    skipped_singletons: int
    draw_indices: Callable[[], Tensor]
    draw_seed: Callable[[], int] = lambda: 0
    draw_pass: Callable[[], Tensor | None] = lambda: None
    erased: int | None = None

    @cached_property
    def indices(self) -> Tensor:
        """All samples of the client in a fixed random order, because batch statistics need mixed classes in a pass."""
        return self.draw_indices()

    @cached_property
    def pass_draws(self) -> Tensor | None:
        """Draws for augmented passes over `indices`, if there are any."""
        return self.draw_pass()

    @cached_property
    def seed(self) -> int:
        """The seed for layers that draw numbers themselves, such as dropout."""
        return self.draw_seed()

    @property
    def num_steps(self) -> int:
        """Optimiser steps the client will make."""
        return sum(len(phase) for phase in self.phases)

    def on(self, device: torch.device) -> "ClientTask":
        """The same task with its batches on the training device."""
        if device.type == "cpu":
            return self
        phases = tuple(tuple(batch.on(device) for batch in phase) for phase in self.phases)
        return replace(self, counts=self.counts.to(device), phases=phases)


@dataclass(frozen=True)
class Planner:
    """Turns (round, client) into a task.

    `mean_samples` is the mean number of samples over all clients. Weights by samples are relative to it, so that
    clients of equal size weigh exactly 1, as with uniform weights. `partial_work` is the probability that a client
    finishes only some of its steps in a round.
    """

    streams: Streams
    shards: Shards
    phases: tuple[PhasePlan, ...]
    batch_size: int
    last_batch: LastBatch
    weighting: Weighting
    mean_samples: float
    skip_singletons: bool
    num_draws: int
    augmented_pass: bool
    device: torch.device
    noise: int = 0
    partial_work: float = 0.0

    def task(
        self, round_: int, client: int, phases: tuple[PhasePlan, ...] | None = None, first_epoch: int = 0
    ) -> ClientTask:
        """The work of `client` in round `round_` (from 0): the method's phases, or `phases`.

        Epochs are counted from `first_epoch` on.
        """
        held = self.shards.indices(client, round_)
        chosen = self.round_phases(round_, client, len(held)) if phases is None else phases
        work = self.workload(len(held), chosen)
        next_epoch: dict[str | None, int] = {}
        planned: list[tuple[Batch, ...]] = []
        for phase, steps, epochs in zip(chosen, work.steps, work.epochs, strict=True):
            start = next_epoch.get(phase.track, first_epoch)
            next_epoch[phase.track] = start + (epochs if phase.epochs is None else phase.epochs)
            batches = self._batches(phase, held, round_, client, range(start, start + epochs))
            planned.append(tuple(batches[:steps]))
        seed_key = (round_, client, *((first_epoch,) if first_epoch else ()))
        width = self.num_draws if self.augmented_pass else 0
        return ClientTask(
            client=client,
            round=round_,
            num_samples=len(held),
            counts=_tensor(self.shards.counts(client, round_)),
            erased=self.shards.removed(client, round_),
            weight=work.weight,
            phases=tuple(planned),
            skipped_singletons=work.skipped_singletons,
            draw_indices=partial(self._shuffled, held, client),
            draw_seed=partial(self.streams.integer, Stream.LAYERS, *seed_key),
            draw_pass=partial(self._pass_draws, width, len(held), round_, client),
        )

    def round_phases(self, round_: int, client: int, num_samples: int) -> tuple[PhasePlan, ...]:
        """The method's phases, as far as a client with this number of samples finishes them in a round."""
        share = finished_share(self.streams, self.partial_work, round_, client)
        return (
            self.phases if share is None else finished_phases(self.phases, self._epoch_batches(num_samples)[0], share)
        )

    def _epoch_batches(self, num_samples: int) -> tuple[IntArray, IntArray]:
        return epoch_batches(
            np.array([num_samples]), self.batch_size, self.last_batch, skip_singletons=self.skip_singletons
        )

    def workload(self, num_samples: int, phases: Sequence[PhasePlan]) -> Workload:
        """What a client with this number of samples does in these phases, and its weight."""
        batches, singletons = self._epoch_batches(num_samples)
        steps = tuple(int(phase_steps(phase, batches)[0]) for phase in phases)
        epochs = tuple(int(phase_epochs(phase, batches)[0]) for phase in phases)
        skipped = sum(epochs) * int(singletons[0])
        return Workload(steps, epochs, skipped, self._weight(num_samples, phases, steps))

    def _batches(
        self, phase: PhasePlan, held: IntArray, round_: int, client: int, epochs: Sequence[int]
    ) -> list[Batch]:
        """The batches of these epochs that hold enough samples to train on; in pairs where a step takes two."""
        batches: list[Batch] = []
        for epoch in epochs:
            made = self._epoch(held, round_, client, epoch)
            kept = [batch for batch in made if len(batch.indices) > 1 or not self.skip_singletons]
            batches += _pairs(kept) if phase.paired else kept
        return batches

    def _epoch(self, held: IntArray, round_: int, client: int, epoch: int) -> list[Batch]:
        """Shuffled batches of one epoch; a short last batch is kept, dropped or filled with the first samples."""
        order = _tensor(held[self.streams.numpy(Stream.BATCHES, round_, client, epoch).permutation(len(held))])
        draws = self._draws(Stream.AUGMENTATION, self.num_draws, len(held), round_, client, epoch)
        noise = self._draws(Stream.METHOD, self.noise, len(held), round_, client, epoch)
        size = self.batch_size
        short = len(held) % size
        if short and self.last_batch == "wrap":
            fill = torch.arange(size - short) % len(held)
            order = torch.cat([order, order[fill]])
            draws, noise = (None if part is None else torch.cat([part, part[fill]]) for part in (draws, noise))
        end = len(order) - short if short and self.last_batch == "drop" else len(order)
        cuts = [slice(i, i + size) for i in range(0, end, size)]
        return [Batch(order[cut], _cut(draws, cut), _cut(noise, cut)) for cut in cuts]

    def _draws(self, stream: str, width: int, count: int, *key: int) -> Tensor | None:
        if not width:
            return None
        return torch.from_numpy(self.streams.numpy(stream, *key).random((count, width)))

    def _shuffled(self, held: IntArray, client: int) -> Tensor:
        return _tensor(held[self.streams.numpy(Stream.FIXED_ORDER, client).permutation(len(held))]).to(self.device)

    def _pass_draws(self, width: int, count: int, round_: int, client: int) -> Tensor | None:
        drawn = self._draws(Stream.PROTOTYPE_AUGMENTATION, width, count, round_, client)
        return None if drawn is None else drawn.to(self.device)

    def _weight(self, num_samples: int, phases: Sequence[PhasePlan], steps: Sequence[int]) -> float:
        """Weight in the aggregate before weights are normalised; a client without a step weighs nothing.

        By batches, the steps of the model that is aggregated count, not those of tracks.
        """
        if not any(steps):
            return 0.0
        match self.weighting:
            case "samples":
                return num_samples / self.mean_samples
            case "uniform":
                return 1.0
            case "batches":
                return float(sum(number for phase, number in zip(phases, steps, strict=True) if phase.track is None))


def _tensor(array: IntArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))


def _cut(draws: Tensor | None, part: slice) -> Tensor | None:
    return None if draws is None else draws[part]


def _pairs(batches: list[Batch]) -> list[Batch]:
    """Two batches for each step: one batch alone is used twice, and an odd last batch is left out."""
    if len(batches) == 1:
        return [replace(batches[0], then=batches[0])]
    return [replace(first, then=second) for first, second in zip(batches[::2], batches[1::2], strict=False)]
