"""The clients of a round; a client's task is planned when a loop reaches the client."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedblade.core.lengths import PhasePlan
from fedblade.core.plan import ClientTask, Planner
from fedblade.core.timeline import timed


@dataclass(frozen=True)
class Cohort:
    """The clients of a round in ascending id. A loop over the cohort plans one task after another.

    An engine that trains clients elsewhere reads the ids only. Then nothing is planned and no data are needed here.
    `phases` replace the method's phases; their epochs are counted from `first_epoch` on.
    """

    planner: Planner
    round: int
    clients: tuple[int, ...]
    phases: tuple[PhasePlan, ...] | None = None
    first_epoch: int = 0

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[ClientTask]:
        for client in self.clients:
            with timed("plan"):
                task = self.planner.task(self.round, client, self.phases, self.first_epoch)
            yield task

    def only(self, clients: Sequence[int]) -> "Cohort":
        """The part of the cohort with these clients, in ascending id."""
        return replace(self, clients=tuple(sorted(clients)))
