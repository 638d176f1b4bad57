"""Who sits where: every client for all its steps, no two in one slot at a time, and no slot running needlessly."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fedblade.engines._schedule import SIZES, SlotUse, make_schedule, num_slots_for

STEPS = some.lists(some.integers(1, 60), min_size=1, max_size=40)
SLOTS = some.sampled_from(SIZES)


def uses_of(found, client):
    return sorted((use for use in found.uses if use.client == client), key=lambda use: use.start)


@given(STEPS, SLOTS)
def test_every_client_makes_all_its_steps_in_order(steps, slots):
    """Where it moves, it goes on at once, with the step that is next, from the slot it was in."""
    found = make_schedule(steps, slots)
    for client, number in enumerate(steps):
        uses = uses_of(found, client)
        assert (uses[0].steps_before, uses[0].source) == (0, None)
        assert uses[-1].steps_after == number
        for before, after in pairwise(uses):
            assert (after.start, after.steps_before, after.source) == (before.end, before.steps_after, before.slot)


@given(STEPS, SLOTS)
def test_no_two_clients_share_a_slot_and_each_sits_in_one_that_runs(steps, slots):
    found = make_schedule(steps, slots)
    taken = Counter((use.slot, tick) for use in found.uses for tick in range(use.start, use.end))
    assert max(taken.values()) == 1
    assert sum(taken.values()) == sum(steps)
    assert all(slot < found.running[tick] for slot, tick in taken)


@given(STEPS, SLOTS)
def test_no_slot_waits_while_a_client_does_and_the_longest_sit_first(steps, slots):
    found = make_schedule(steps, slots)
    begins = [uses_of(found, client)[0].start for client in range(len(steps))]
    for tick in range(len(found.running)):
        busy = sum(use.start <= tick < use.end for use in found.uses)
        assert busy == slots or all(begin <= tick for begin in begins)
    for one, begin in enumerate(begins):
        assert all(steps[one] >= steps[other] for other, later in enumerate(begins) if begin < later)


@given(STEPS, SLOTS)
def test_no_more_slots_run_than_are_needed(steps, slots):
    found = make_schedule(steps, slots)
    for tick, running in enumerate(found.running):
        busy = sum(use.start <= tick < use.end for use in found.uses)
        waiting = any(use.start > tick and use.source is None for use in found.uses)
        assert running == (slots if waiting else min(num_slots_for(busy, slots), slots))


@given(STEPS, SLOTS)
def test_the_first_clients_sit_in_the_first_slots(steps, slots):
    """So that they can be loaded all at once: a group comes longest first."""
    ordered = sorted(steps, reverse=True)
    for use in make_schedule(ordered, slots).uses:
        if use.start == 0:
            assert use.client == use.slot


@given(some.lists(some.integers(1, 6), min_size=1, max_size=6), some.sampled_from((1, 2, 3)))
def test_a_round_takes_at_most_a_third_longer_than_it_must(steps, slots):
    """Graham, 1969: longest first needs at most 4/3 - 1/(3m) of the best schedule, found here by force."""
    best = {tuple([0] * slots)}
    for each in steps:
        best = {tuple(sorted((*load[:i], load[i] + each, *load[i + 1 :]))) for load in best for i in range(slots)}
    shortest = min(max(load) for load in best)
    assert 3 * slots * len(make_schedule(steps, slots).running) <= (4 * slots - 1) * shortest


def test_a_schedule_by_hand():
    found = make_schedule([2, 3, 2, 3], 2)
    assert found.running == (2, 2, 2, 2, 2)
    assert set(found.uses) == {SlotUse(1, 0, 0, 3), SlotUse(3, 1, 0, 3), SlotUse(0, 0, 3, 5), SlotUse(2, 1, 3, 5)}
    found = make_schedule([1, 4, 1], 2)
    assert found.running == (2, 2, 1, 1)
    assert set(found.uses) == {SlotUse(1, 0, 0, 4), SlotUse(0, 1, 0, 1), SlotUse(2, 1, 1, 2)}
    found = make_schedule([3, 2, 3], 2)
    assert found.running == (2, 2, 2, 1, 1)
    assert set(found.uses) == {SlotUse(0, 0, 0, 3), SlotUse(2, 1, 0, 3), SlotUse(1, 0, 3, 5)}


def test_a_client_moves_when_its_slot_stops_running():
    """Client 2 starts in slot 1 and goes on in slot 0 when nobody else is left."""
    found = make_schedule([1, 3, 3, 4], 2)
    assert found.running == (2, 2, 2, 2, 2, 1)
    assert uses_of(found, 2) == [SlotUse(2, 1, 3, 5), SlotUse(2, 0, 5, 6, steps_before=2, source=1)]


@pytest.mark.parametrize(
    ("clients", "most", "expected"), [(1, 32, 1), (2, 32, 2), (9, 32, 10), (20, 32, 20), (100, 32, 32), (100, 9, 8)]
)
def test_numbers_of_slots_by_hand(clients, most, expected):
    assert num_slots_for(clients, most) == expected


def test_a_cohort_without_a_client_takes_no_time():
    assert make_schedule([], 4).running == ()
