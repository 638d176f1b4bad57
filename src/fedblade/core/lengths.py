"""How long local training lasts: epochs or steps of a phase, counted from a client's number of samples alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
LastBatch = Literal["keep", "drop", "wrap"]


@dataclass(frozen=True)
class PhasePlan:
    """How long a phase lasts: a number of epochs, or `steps` if that is less; `paired` steps take two batches.

    Without `epochs` a client begins one epoch after another until it has made its `steps`, however few samples it has.
    Phases of one `track` count their epochs together and apart from other tracks, so that a model sees the batches it
    would see alone.
    """

    epochs: int | None
    steps: int | None = None
    paired: bool = False
    track: str | None = None

    @property
    def most_epochs(self) -> int:
        """The largest number of epochs that a client begins; every epoch has at least one step."""
        return (self.steps or 0) if self.epochs is None else self.epochs


@dataclass(frozen=True)
class Workload:
    """What a client does in a round, counted from its number of samples alone.

    `steps` has the local steps of each phase and `epochs` the epochs that each phase begins. `skipped_singletons`
    counts the batches that are left out because they hold one sample. `weight` is the client's weight in the aggregate
    before weights are normalised; a client without a step weighs 0.
    """

    steps: tuple[int, ...]
    epochs: tuple[int, ...]
    skipped_singletons: int
    weight: float


def epoch_batches(samples: Ints, batch_size: int, last_batch: LastBatch, *, skip_singletons: bool) -> tuple[Ints, Ints]:
    """Batches of one epoch for clients with these numbers of samples: batches trained on, and batches left out.

    A batch of one sample is left out where the network has layers that need two.
    """
    full, short = samples // batch_size, samples % batch_size
    made = full + (short > 0) * int(last_batch != "drop")
    if not skip_singletons:
        return made, np.zeros_like(made)
    # A full batch holds one sample only where the batch size is 1.
    singletons = made if batch_size == 1 else (short == 1).astype(np.int64) * int(last_batch == "keep")
    return made - singletons, singletons


def phase_steps(phase: PhasePlan, batches: Ints) -> Ints:
    """Steps of a phase for clients with these numbers of batches in an epoch."""
    per_epoch = _steps_of_epoch(phase, batches)
    if phase.epochs is None:
        return np.where(per_epoch > 0, phase.most_epochs, 0)
    whole = phase.epochs * per_epoch
    return whole if phase.steps is None else np.minimum(whole, phase.steps)


def phase_epochs(phase: PhasePlan, batches: Ints) -> Ints:
    """Epochs of a phase that clients with these numbers of batches in an epoch begin."""
    per_epoch = _steps_of_epoch(phase, batches)
    # A client without a step counts all its epochs and trains in none; where their number is open, it counts one.
    least = np.full_like(per_epoch, 1 if phase.epochs is None else phase.epochs)
    if phase.steps is None:
        return least
    needed = np.where(per_epoch > 0, -(-phase.steps // np.maximum(per_epoch, 1)), least)
    return needed if phase.epochs is None else np.minimum(needed, phase.epochs)


def most_samples(phase: PhasePlan, num_samples: int, batch_size: int) -> int:
    """The largest number of samples that a client trains on in a phase, repetitions counted."""
    limits = [] if phase.epochs is None else [phase.epochs * num_samples]
    # Without a number of epochs, a client with fewer samples than a batch uses all of them in every step.
    limits += [] if phase.steps is None else [phase.steps * min(batch_size, num_samples)]
    return min(limits)


def _steps_of_epoch(phase: PhasePlan, batches: Ints) -> Ints:
    """A paired step takes two batches: one batch alone is used twice, and an odd last batch is left out."""
    return np.maximum(batches // 2, np.minimum(batches, 1)) if phase.paired else batches
