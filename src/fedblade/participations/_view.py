"""What a participation may look at before a round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedblade.core.errors import Misconfigured

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
AskLosses = Callable[[Ints], Floats]
"""The losses of these clients, which ascend in id; NaN for a client that does not answer."""


def _no_losses(clients: Ints) -> Floats:
    raise Misconfigured(
        f"a participation asks for the losses of {len(clients)} clients, and this view has no model that gives them. "
        f"Give the view a function as ask_losses."
    )


@dataclass(frozen=True)
class ParticipationView:
    """A round (from 0) before it begins, and the clients that may take part in it.

    `clients [n]` are their ids in ascending order, `per_round` is `federation.clients_per_round`, and `generator` has
    the random numbers of the round, drawn from the run's seed. A choice that uses nothing else is the same for every
    method of a seed, and for a run that goes on.
    """

    round: int
    clients: Ints
    per_round: int
    generator: np.random.Generator
    read_sizes: Callable[[], Ints] = field(repr=False)
    ask_losses: AskLosses = field(default=_no_losses, repr=False)

    @cached_property
    def sizes(self) -> Ints:
        """The number of training samples of each of the `clients` [n]; 0 for a client whose node never connected."""
        return self.read_sizes()

    def losses(self, clients: Sequence[int] | Ints) -> Floats:
        """The losses of the current global model on the training samples of these clients, in their order.

        A client's loss is the mean cross-entropy of the logits, whatever loss the method trains with. Where the method
        leaves parts of the model with the clients, these are the client's own parts. The clients are asked when this is
        called: each receives the model and passes over its samples once. A client that does not answer has the loss
        NaN.
        """
        asked = np.asarray(clients, dtype=np.int64)
        ascending, places = np.unique(asked, return_inverse=True)
        return self.ask_losses(ascending)[places]
