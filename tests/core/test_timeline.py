"""Stages of a run: their own times add up, and nothing happens when nobody listens."""

import contextvars
import threading
import time

import pytest
import torch

from fedblade.core import timeline as module
from fedblade.core.timeline import OTHER, Timeline, timed, wait_for


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves by hand, in seconds."""

    class Clock:
        now = 0.0

        def sleep(self, seconds):
            self.now += seconds

    hand = Clock()
    monkeypatch.setattr(module.time, "perf_counter_ns", lambda: round(hand.now * 1e9))
    return hand


def test_without_a_listener_a_stage_does_nothing_and_is_one_shared_object():
    assert timed("train") is timed("sums")
    with timed("train"), timed("train"):
        pass
    wait_for(torch.device("cpu"))


def test_a_stage_has_the_time_that_the_stages_inside_it_leave(clock):
    taken = Timeline()
    with taken.listen():
        clock.sleep(1)
        with timed("train"):
            clock.sleep(2)
            with timed("load"):
                clock.sleep(4)
                with timed("plan"):
                    clock.sleep(8)
            with timed("load"):
                clock.sleep(16)
        clock.sleep(32)
    clock.sleep(64)
    assert taken.seconds() == {"plan": 8, "load": 20, "train": 2, OTHER: 33}
    assert sum(taken.seconds().values()) == 63


def test_rounds_are_told_apart_and_keep_what_no_stage_claims(clock):
    taken = Timeline()
    with taken.listen():
        with timed("prepare"):
            clock.sleep(1)
        for number in (3, 4):
            with timed("round", number):
                clock.sleep(number)
                with timed("train"):
                    clock.sleep(10 * number)
            clock.sleep(100)
    assert taken.rounds == [3, 4]
    assert taken.seconds(3) == {"train": 30, OTHER: 3}
    assert taken.seconds(4) == {"train": 40, OTHER: 4}
    assert taken.seconds() == {"prepare": 1, "train": 70, OTHER: 207}


def test_spans_say_when_and_in_which_round(clock):
    taken = Timeline()
    clock.sleep(5)
    with taken.listen(), timed("round", 2):
        clock.sleep(1)
        with timed("sums"):
            clock.sleep(2)
    found = [(each.name, each.start_ns / 1e9, each.duration_ns / 1e9, each.round) for each in taken.spans]
    assert found == [("sums", 6, 2, 2), ("round", 5, 3, 2), ("run", 5, 3, None)]


def test_an_error_ends_the_stages_it_passes_through(clock):
    taken = Timeline()

    def breaks():
        with taken.listen(), timed("round", 1), timed("train"):
            clock.sleep(3)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        breaks()
    assert taken.seconds() == {"train": 3}
    assert timed("train") is timed("load")
    with taken.listen(), timed("load"):
        clock.sleep(1)
    assert taken.seconds() == {"load": 1, "train": 3}


def test_spans_have_a_limit_and_totals_have_none(clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_SPANS", 3)
    taken = Timeline()
    with taken.listen():
        for _ in range(5):
            with timed("load"):
                clock.sleep(1)
    assert (len(taken.spans), taken.dropped_spans) == (3, 3)
    assert taken.seconds() == {"load": 5}


def test_other_threads_are_not_listened_to():
    taken = Timeline()

    def elsewhere():
        with timed("train"):
            time.sleep(0.001)

    with taken.listen():
        for target in (elsewhere, contextvars.Context().run):
            thread = threading.Thread(target=target, args=() if target is elsewhere else (elsewhere,))
            thread.start()
            thread.join()
    assert "train" not in taken.seconds()


def test_on_a_gpu_a_stage_waits_for_the_work_it_gave_out(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    taken = Timeline()
    with taken.listen():
        with timed("load"):
            pass
        assert waited == []
        wait_for(torch.device("cpu"))
        with timed("load"):
            pass
        assert waited == []
        wait_for(torch.device("cuda:1"))
        with timed("train"):
            assert waited == [torch.device("cuda:1")]
        assert waited == 2 * [torch.device("cuda:1")]
    waited.clear()
    with timed("train"):
        pass
    assert waited == []


def test_a_stage_nobody_listens_to_costs_next_to_nothing():
    """A client passes through some five stages and takes a millisecond at the very least."""

    def passes(number):
        began = time.process_time()
        for _ in range(number):
            with timed("train"):
                pass
        return (time.process_time() - began) / number

    assert min(passes(2000) for _ in range(5)) < 5e-6
