"""Who sits where: every client for all its steps, no two in one slot at a time, and no slot running needlessly."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fedblade.engines._schedule import SIZES, Stay, schedule, size_for

STEPS = some.lists(some.integers(1, 60), min_size=1, max_size=40)
SLOTS = some.sampled_from(SIZES)


def stays_of(found, client):
    return sorted((stay for stay in found.stays if stay.client == client), key=lambda stay: stay.start)


@given(STEPS, SLOTS)
def test_every_client_makes_all_its_steps_in_order(steps, slots):
    """Where it moves, it goes on at once, with the step that is next, from the slot it was in."""
    found = schedule(steps, slots)
    for client, number in enumerate(steps):
        stays = stays_of(found, client)
        assert (stays[0].first, stays[0].source) == (0, None)
        assert stays[-1].last == number
        for before, after in pairwise(stays):
            assert (after.start, after.first, after.source) == (before.end, before.last, before.slot)


@given(STEPS, SLOTS)
def test_no_two_clients_share_a_slot_and_each_sits_in_one_that_runs(steps, slots):
    found = schedule(steps, slots)
    taken = Counter((stay.slot, tick) for stay in found.stays for tick in range(stay.start, stay.end))
    assert max(taken.values()) == 1
    assert sum(taken.values()) == sum(steps)
    assert all(slot < found.running[tick] for slot, tick in taken)


@given(STEPS, SLOTS)
def test_no_slot_waits_while_a_client_does_and_the_longest_sit_first(steps, slots):
    found = schedule(steps, slots)
    begins = [stays_of(found, client)[0].start for client in range(len(steps))]
    for tick in range(len(found.running)):
        busy = sum(stay.start <= tick < stay.end for stay in found.stays)
        assert busy == slots or all(begin <= tick for begin in begins)
    for one, begin in enumerate(begins):
        assert all(steps[one] >= steps[other] for other, later in enumerate(begins) if begin < later)


@given(STEPS, SLOTS)
def test_no_more_slots_run_than_are_needed(steps, slots):
    found = schedule(steps, slots)
    for tick, running in enumerate(found.running):
        busy = sum(stay.start <= tick < stay.end for stay in found.stays)
        waiting = any(stay.start > tick and stay.source is None for stay in found.stays)
        assert running == (slots if waiting else min(size_for(busy, slots), slots))


@given(STEPS, SLOTS)
def test_the_first_clients_sit_in_the_first_slots(steps, slots):
    """So that they can be loaded all at once: a group comes longest first."""
    ordered = sorted(steps, reverse=True)
    for stay in schedule(ordered, slots).stays:
        if stay.start == 0:
            assert stay.client == stay.slot


@given(some.lists(some.integers(1, 6), min_size=1, max_size=6), some.sampled_from((1, 2, 3)))
def test_a_round_takes_at_most_a_third_longer_than_it_must(steps, slots):
    """Graham, 1969: longest first needs at most 4/3 - 1/(3m) of the best schedule, found here by force."""
    best = {tuple([0] * slots)}
    for each in steps:
        best = {tuple(sorted((*load[:i], load[i] + each, *load[i + 1 :]))) for load in best for i in range(slots)}
    shortest = min(max(load) for load in best)
    assert 3 * slots * len(schedule(steps, slots).running) <= (4 * slots - 1) * shortest


def test_a_schedule_by_hand():
    found = schedule([2, 3, 2, 3], 2)
    assert found.running == (2, 2, 2, 2, 2)
    assert set(found.stays) == {Stay(1, 0, 0, 3), Stay(3, 1, 0, 3), Stay(0, 0, 3, 5), Stay(2, 1, 3, 5)}
    found = schedule([1, 4, 1], 2)
    assert found.running == (2, 2, 1, 1)
    assert set(found.stays) == {Stay(1, 0, 0, 4), Stay(0, 1, 0, 1), Stay(2, 1, 1, 2)}
    found = schedule([3, 2, 3], 2)
    assert found.running == (2, 2, 2, 1, 1)
    assert set(found.stays) == {Stay(0, 0, 0, 3), Stay(2, 1, 0, 3), Stay(1, 0, 3, 5)}


def test_a_client_moves_when_its_slot_stops_running():
    """Client 2 starts in slot 1 and goes on in slot 0 when nobody else is left."""
    found = schedule([1, 3, 3, 4], 2)
    assert found.running == (2, 2, 2, 2, 2, 1)
    assert stays_of(found, 2) == [Stay(2, 1, 3, 5), Stay(2, 0, 5, 6, first=2, source=1)]


@pytest.mark.parametrize(
    ("clients", "most", "expected"), [(1, 32, 1), (2, 32, 2), (9, 32, 10), (20, 32, 20), (100, 32, 32), (100, 9, 8)]
)
def test_numbers_of_slots_by_hand(clients, most, expected):
    assert size_for(clients, most) == expected


def test_a_cohort_without_a_client_takes_no_time():
    assert schedule([], 4).running == ()
