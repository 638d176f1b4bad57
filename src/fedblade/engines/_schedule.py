"""Which client trains in which slot at which tick, and how many slots run (`stacked.py` explains the words).

The client with most steps comes first, and a slot whose client is done takes the next client of the queue. When the
queue is empty fewer slots run: the smallest of a few numbers that leaves a slot for every client. The last clients
move to the first slots for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32)
"""Numbers of slots that may run together; a GPU captures the step once for each number."""


@dataclass(frozen=True)
class SlotUse:
    """A client in a slot from tick `start` to tick `end` (exclusive); `client` is its position in the group.

    The client has made `steps_before` steps in slot `source` before; None says that it begins its training here.
    """

    client: int
    slot: int
    start: int
    end: int
    steps_before: int = 0
    source: int | None = None

    @property
    def steps_after(self) -> int:
        """Steps that the client has made when it leaves the slot."""
        return self.steps_before + self.end - self.start


@dataclass(frozen=True)
class Schedule:
    """Every use of a slot by a client, and the number of slots that run at each tick."""

    uses: tuple[SlotUse, ...]
    running: tuple[int, ...]


def num_slots_for(clients: int, most: int) -> int:
    """The smallest of `SIZES` with a slot for every client, or the largest that `most` allows."""
    allowed = [size for size in SIZES if size <= max(1, most)]
    return next((size for size in allowed if size >= clients), allowed[-1])


def make_schedule(steps: Sequence[int], num_slots: int) -> Schedule:
    """Give clients with these numbers of steps their slots, the client with most steps first."""
    queue = sorted(range(len(steps)), key=lambda client: (steps[client], -client))
    current: dict[int, SlotUse] = {}
    uses: list[SlotUse] = []
    running: list[int] = []
    size = num_slots
    while queue or current:
        now = len(running)
        for slot in range(size):
            if queue and slot not in current:
                client = queue.pop()
                current[slot] = SlotUse(client, slot, now, now + steps[client])
        if not queue:
            size = num_slots_for(len(current), size)
            uses += _move_to_first_slots(current, size, now)
        until = min(use.end for use in current.values())
        running += [size] * (until - now)
        uses += [use for use in current.values() if use.end == until]
        current = {slot: use for slot, use in current.items() if use.end > until}
    return Schedule(tuple(uses), tuple(running))


def _move_to_first_slots(current: dict[int, SlotUse], size: int, now: int) -> list[SlotUse]:
    """Move clients from slots that will not run to free slots that will; returns the uses that end with the move."""
    free = iter([slot for slot in range(size) if slot not in current])
    ended: list[SlotUse] = []
    for slot in sorted(slot for slot in current if slot >= size):
        old = current.pop(slot)
        target = next(free)
        if old.start == now:
            current[target] = replace(old, slot=target)
        else:
            ended.append(replace(old, end=now))
            current[target] = SlotUse(old.client, target, now, old.end, ended[-1].steps_after, slot)
    return ended
