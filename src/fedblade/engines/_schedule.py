"""Who trains in which slot at which tick, and how many slots run.

The longest client comes first and a finished slot is refilled from the queue. When the queue is empty fewer slots run,
as few of a small set of numbers as still hold everybody: the last clients move to the first slots for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32)
"""Numbers of slots that run; each is captured once on a GPU."""


@dataclass(frozen=True)
class Stay:
    """A client in a slot from tick `start` to `end` (exclusive), after `first` steps in slot `source` (None: new)."""

    client: int
    slot: int
    start: int
    end: int
    first: int = 0
    source: int | None = None

    @property
    def last(self) -> int:
        """Steps that the client has made when it leaves the slot."""
        return self.first + self.end - self.start


@dataclass(frozen=True)
class Schedule:
    """The stays of all clients, and the number of slots that run at each tick."""

    stays: tuple[Stay, ...]
    running: tuple[int, ...]


def size_for(clients: int, most: int) -> int:
    """The smallest number of slots that holds so many clients, or the largest that `most` allows."""
    allowed = [size for size in SIZES if size <= max(1, most)]
    return next((size for size in allowed if size >= clients), allowed[-1])


def schedule(steps: Sequence[int], slots: int) -> Schedule:
    """Seat clients with so many steps in at most `slots` slots, the longest first."""
    queue = sorted(range(len(steps)), key=lambda client: (steps[client], -client))
    seated: dict[int, Stay] = {}
    stays: list[Stay] = []
    running: list[int] = []
    size = slots
    while queue or seated:
        now = len(running)
        for slot in range(size):
            if queue and slot not in seated:
                client = queue.pop()
                seated[slot] = Stay(client, slot, now, now + steps[client])
        if not queue:
            size = size_for(len(seated), size)
            stays += _moved(seated, size, now)
        until = min(stay.end for stay in seated.values())
        running += [size] * (until - now)
        stays += [stay for stay in seated.values() if stay.end == until]
        seated = {slot: stay for slot, stay in seated.items() if stay.end > until}
    return Schedule(tuple(stays), tuple(running))


def _moved(seated: dict[int, Stay], size: int, now: int) -> list[Stay]:
    """Move clients from slots that will not run to free ones that will, and give the stays which that ends."""
    free = iter([slot for slot in range(size) if slot not in seated])
    ended: list[Stay] = []
    for slot in sorted(each for each in seated if each >= size):
        old = seated.pop(slot)
        into = next(free)
        if old.start == now:
            seated[into] = replace(old, slot=into)
        else:
            ended.append(replace(old, end=now))
            seated[into] = Stay(old.client, into, now, old.end, ended[-1].last, slot)
    return ended
