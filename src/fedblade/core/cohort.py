"""Clients of a round, whose tasks are planned when they are reached."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedblade.core.lengths import PhasePlan
from fedblade.core.plan import ClientTask, Planner
from fedblade.core.timeline import timed


@dataclass(frozen=True)
class Cohort:
    """The clients of a round in ascending id. Going through it plans one task after another.

    An engine that trains clients elsewhere reads the ids alone, so that nothing is planned, and no data are needed,
    where nothing is trained. `phases` are other ones than the method's, counted from `first_epoch` on.
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
        """The part of it with these clients, in ascending id."""
        return replace(self, clients=tuple(sorted(clients)))
