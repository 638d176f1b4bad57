"""Who sits in which slot at which tick: longest first, a finished slot is refilled from the queue."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SIZES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32)
"""Numbers of slots that are used; each costs a capture on a GPU."""


@dataclass(frozen=True)
class Seat:
    """A client's stay in a slot: ticks `start` to `end` (exclusive)."""

    client: int
    slot: int
    start: int
    end: int


def choose_slots(steps: Sequence[int], most: int) -> int:
    """As many slots as keep the longest client the critical path: all steps over its own, at most `most`."""
    wanted = -(-sum(steps) // max(steps))
    fitting = [size for size in SIZES if size <= max(1, min(most, len(steps)))]
    return next((size for size in fitting if size >= wanted), fitting[-1])


def seat(steps: Sequence[int], slots: int) -> list[Seat]:
    """Seats of clients 0, 1, … with so many steps; the longest are seated first, each in the slot that is free next."""
    order = sorted(range(len(steps)), key=lambda client: (-steps[client], client))
    free = [(0, slot) for slot in range(slots)]
    seats: list[Seat] = []
    for client in order:
        start, slot = heapq.heappop(free)
        seats.append(Seat(client, slot, start, start + steps[client]))
        heapq.heappush(free, (start + steps[client], slot))
    return seats


def by_tick(seats: Sequence[Seat], moment: Literal["start", "end"]) -> dict[int, list[Seat]]:
    """Seats by the tick at which they are taken or left."""
    table: dict[int, list[Seat]] = {}
    for each in seats:
        table.setdefault(each.start if moment == "start" else each.end, []).append(each)
    return table
