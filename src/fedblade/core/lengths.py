"""How long local training lasts: epochs or steps of a phase, counted from a client's number of samples alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
LastBatch = Literal["keep", "drop", "wrap"]


@dataclass(frozen=True)
class PhasePlan:
    """How long a phase lasts: so many epochs, or `steps` if that is less; `paired` steps take two batches.

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
        """Epochs that no client begins more of; every epoch has at least one step."""
        return (self.steps or 0) if self.epochs is None else self.epochs


def epoch_batches(samples: Ints, batch_size: int, last_batch: LastBatch, *, skip_singletons: bool) -> tuple[Ints, Ints]:
    """Batches of one epoch for clients with so many samples each: those trained on, and those left out as too small.

    A batch of one sample is left out where the network has layers that need two.
    """
    full, short = samples // batch_size, samples % batch_size
    made = full + (short > 0) * int(last_batch != "drop")
    if not skip_singletons:
        return made, np.zeros_like(made)
    # A batch of one can only be a full batch where batches have one sample.
    alone = made if batch_size == 1 else (short == 1).astype(np.int64) * int(last_batch == "keep")
    return made - alone, alone


def phase_steps(phase: PhasePlan, batches: Ints) -> Ints:
    """Steps of a phase for clients with so many batches in an epoch."""
    each = _steps_of_epoch(phase, batches)
    if phase.epochs is None:
        return np.where(each > 0, phase.most_epochs, 0)
    whole = phase.epochs * each
    return whole if phase.steps is None else np.minimum(whole, phase.steps)


def phase_epochs(phase: PhasePlan, batches: Ints) -> Ints:
    """Epochs of a phase that clients with so many batches in an epoch begin."""
    each = _steps_of_epoch(phase, batches)
    # A client without a step goes through all epochs in vain, or, where their number is open, gives up after one.
    least = np.full_like(each, 1 if phase.epochs is None else phase.epochs)
    if phase.steps is None:
        return least
    needed = np.where(each > 0, -(-phase.steps // np.maximum(each, 1)), least)
    return needed if phase.epochs is None else np.minimum(needed, phase.epochs)


def _steps_of_epoch(phase: PhasePlan, batches: Ints) -> Ints:
    """Two batches for each step where steps are paired; a lone batch serves twice, an odd last one is left out."""
    return np.maximum(batches // 2, np.minimum(batches, 1)) if phase.paired else batches
