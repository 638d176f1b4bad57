"""Who sits where: every client once, for all its steps, no two in one slot at a time, and no slot idle needlessly."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fedblade.engines._schedule import SIZES, Seat, choose_slots, seat

STEPS = some.lists(some.integers(1, 60), min_size=1, max_size=40)
SLOTS = some.integers(1, 33)


@given(STEPS, SLOTS)
def test_every_client_is_seated_once_for_all_its_steps(steps, slots):
    seats = seat(steps, slots)
    assert sorted(each.client for each in seats) == list(range(len(steps)))
    for each in seats:
        assert each.end - each.start == steps[each.client]
        assert each.start >= 0
        assert 0 <= each.slot < slots


@given(STEPS, SLOTS)
def test_no_two_clients_share_a_slot_at_a_tick(steps, slots):
    taken = Counter((each.slot, tick) for each in seat(steps, slots) for tick in range(each.start, each.end))
    assert max(taken.values()) == 1
    assert sum(taken.values()) == sum(steps)


@given(STEPS, SLOTS)
def test_slots_are_refilled_at_once_and_the_longest_sit_first(steps, slots):
    """No slot waits while a client does, and whoever starts later is not longer."""
    seats = seat(steps, slots)
    for each in seats:
        before = [other.end for other in seats if other.slot == each.slot and other.end <= each.start]
        assert each.start == max(before, default=0)
    for one in seats:
        for other in seats:
            if one.start < other.start:
                assert steps[one.client] >= steps[other.client]


@given(STEPS, SLOTS)
def test_a_round_takes_at_most_a_third_longer_than_it_must(steps, slots):
    """Graham, 1969: longest first needs at most 4/3 - 1/(3m) of the best schedule.

    The best is not known here, but the client that ends last began when all slots were busy, so that the others' steps
    fill them up to its start: its end is at most (total - own)/slots + own. If it is not among the first in their
    slots, its steps are no more than those of anybody before it, which is where the third comes from.
    """
    ends = [each.end for each in seat(steps, slots)]
    shortest = max(max(steps), -(-sum(steps) // slots))
    assert max(ends) >= shortest
    last = max(seat(steps, slots), key=lambda each: each.end)
    own = steps[last.client]
    assert slots * (max(ends) - own) <= sum(steps) - own
    if len(steps) <= slots:
        assert max(ends) == max(steps)
    if 3 * own <= shortest:
        assert 3 * max(ends) <= 4 * shortest


@given(some.lists(some.integers(1, 6), min_size=1, max_size=6), some.integers(1, 3))
def test_the_bound_holds_against_the_best_schedule(steps, slots):
    """All ways to give the clients to slots, by force."""
    best = {tuple([0] * slots)}
    for each in steps:
        best = {tuple(sorted((*load[:i], load[i] + each, *load[i + 1 :]))) for load in best for i in range(slots)}
    shortest = min(max(load) for load in best)
    assert 3 * slots * max(each.end for each in seat(steps, slots)) <= (4 * slots - 1) * shortest


@given(STEPS, some.integers(1, 40))
def test_the_number_of_slots_stays_within_its_limits(steps, most):
    slots = choose_slots(steps, most)
    assert slots in SIZES
    assert 1 <= slots <= min(most, len(steps))


@given(STEPS, some.integers(1, 40))
def test_no_smaller_number_would_leave_the_longest_client_the_last(steps, most):
    """With fewer slots the steps would not fit into the time of the longest client, unless no more are allowed."""
    slots = choose_slots(steps, most)
    smaller = [size for size in SIZES if size < slots]
    assert all(size * max(steps) < sum(steps) for size in smaller)
    larger = [size for size in SIZES if slots < size <= min(most, len(steps))]
    if larger:
        assert slots * max(steps) >= sum(steps)


def test_seats_by_hand():
    assert seat([2, 5, 3, 1], 2) == [Seat(1, 0, 0, 5), Seat(2, 1, 0, 3), Seat(0, 1, 3, 5), Seat(3, 0, 5, 6)]


@pytest.mark.parametrize(
    ("steps", "most", "expected"),
    [([7], 16, 1), ([4, 4], 16, 2), ([9, 1, 1, 1], 16, 2), ([3] * 10, 16, 8), ([3] * 100, 16, 16), ([3] * 100, 5, 4)],
)
def test_numbers_of_slots_by_hand(steps, most, expected):
    assert choose_slots(steps, most) == expected


@pytest.mark.parametrize("steps", [[], [0, 0]])
def test_a_cohort_without_a_step_has_no_schedule(steps):
    """Engines leave idle clients out before they ask."""
    with pytest.raises((ValueError, ZeroDivisionError)):
        choose_slots(steps, 16)
