"""Seconds per round, time left and silence, from numbers that can be checked by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedblade.results import Round, RunRecord
from fedblade.watch._pace import Pace


def record(seconds: list[float | None], planned: int | None = 20) -> RunRecord:
    config = {} if planned is None else {"federation": {"rounds": planned}}
    history = tuple(Round(at, None, None, each) for at, each in enumerate(seconds, 1))
    return RunRecord(Path("run"), config, {}, history, None)


def test_before_rounds_are_seen_their_own_seconds_count_the_last_ten_of_them():
    assert Pace().per_round(record([100.0, *[2.0] * 5, *[4.0] * 5])) == 3.0
    assert Pace().per_round(record([None, 3.0])) == 3.0
    assert Pace().per_round(record([])) is None


def test_rounds_seen_to_arrive_count_by_the_clock():
    pace, run = Pace(), record([1.0] * 8)
    pace.see(4, 100.0)
    assert pace.per_round(run) == 1.0
    pace.see(8, 120.0)
    assert pace.per_round(run) == 5.0


def test_only_the_last_ten_rounds_count():
    pace, run = Pace(), record([1.0])
    for round_ in range(1, 31):
        pace.see(round_, 100.0 * round_ if round_ <= 15 else 1500.0 + 2.0 * (round_ - 15))
    assert pace.per_round(run) == 2.0


def test_a_long_jump_counts_even_if_it_is_further_than_ten_rounds():
    pace = Pace()
    pace.see(1, 0.0)
    pace.see(101, 50.0)
    assert pace.per_round(record([1.0])) == 0.5


@pytest.mark.parametrize(("round_", "at"), [(3, 900.0), (5, 900.0)])
def test_a_history_that_was_rewritten_starts_anew(round_, at):
    pace, run = Pace(), record([1.0])
    for seen in range(1, 6):
        pace.see(seen, 10.0 * seen)
    pace.see(round_, at)
    assert pace.per_round(run) == 1.0
    pace.see(round_ + 1, at + 3.0)
    assert pace.per_round(run) == 3.0


def test_looking_twice_at_the_same_round_changes_nothing():
    pace = Pace()
    for round_, at in ((1, 0.0), (2, 4.0), (2, 4.0), (2, 4.0)):
        pace.see(round_, at)
    assert pace.per_round(record([1.0])) == 4.0


@pytest.mark.parametrize(("age", "left"), [(0.0, 24.0), (1.5, 22.5), (2.0, 22.0), (1000.0, 22.0)])
def test_time_left_counts_the_round_in_course_at_most_once(age, left):
    assert Pace().left(record([2.0] * 8), age) == left


def test_time_left_at_the_end_and_where_nothing_is_known():
    run = record([2.0] * 20)
    assert Pace().left(run, 100.0) == 0.0
    assert Pace().left(replace(run, history=()), 0.0) is None
    assert Pace().left(record([2.0], planned=None), 0.0) is None


def test_silence_is_five_usual_rounds_and_at_least_ten_seconds():
    slow, quick = record([60.0] * 3), record([0.1] * 3)
    assert [Pace().silent(slow, age) for age in (299.0, 301.0)] == [False, True]
    assert [Pace().silent(quick, age) for age in (1.0, 9.9, 10.1)] == [False, False, True]
    assert not Pace().silent(record([]), 1e9)
