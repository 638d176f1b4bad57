"""Torch's threads sleep while other processes take the cores, and spin on a quiet machine."""

import itertools
import os
import sys
import threading
import time

import pytest
import torch

from fedblade.runs import _spinning
from fedblade.runs._spinning import IdleThreads, involuntary_switches, sleeping_when_busy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the counters of Linux")


@pytest.fixture(autouse=True)
def two_threads():
    torch.set_num_threads(2)
    _spinning._was_busy.clear()
    yield
    _spinning._was_busy.clear()
    torch.set_num_threads(1)


def idle_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("idle-")]


def watched(switches):
    """How many idle threads there were at each look, given the switches counted there; None ends the watch."""
    over, seen = threading.Event(), []

    def count():
        seen.append(len(idle_threads()))
        switched = next(switches, None)
        if switched is None:
            over.set()
        return switched or 0

    _spinning._watch(over, count)
    return seen


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(_spinning, "_INTERVAL", 0.001)


def test_idle_threads_come_with_switches_and_go_when_it_is_quiet(quickly):
    seen = watched(iter([0, 0, 1, 50, *itertools.repeat(50, _spinning._QUIET + 3)]))
    assert seen[:4] == [0, 0, 0, 0]
    assert seen[4] >= len(os.sched_getaffinity(0))
    assert all(seen[4 : 4 + _spinning._QUIET])
    assert seen[-1] == 0


def test_none_is_left_at_the_end_and_the_next_watch_begins_with_them(quickly):
    assert watched(iter([0, 50, 100, 150]))[-1] > 0
    assert not idle_threads()
    assert watched(iter([0, 0]))[0] > 0
    assert not idle_threads()


def test_starting_twice_starts_once():
    idle = IdleThreads()
    idle.start()
    first = idle_threads()
    idle.start()
    assert idle_threads() == first
    idle.end()
    assert not idle_threads()


def test_the_watch_ends_with_the_block():
    with sleeping_when_busy():
        assert "watches-cores" in [thread.name for thread in threading.enumerate()]
    assert "watches-cores" not in [thread.name for thread in threading.enumerate()]


def test_one_thread_has_nobody_to_wait_for():
    torch.set_num_threads(1)
    with sleeping_when_busy():
        assert "watches-cores" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.slow
def test_threads_use_less_of_the_cores_beside_idle_ones():
    """Between operations a spinning thread counts as busy, and a sleeping one does not."""

    def helpers_share():
        numbers = torch.zeros(1 << 17)
        began, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < 0.3:
            numbers.add_(1)
            time.sleep(0.0005)
        return (time.process_time() - used) / (time.perf_counter() - began)

    spinning = helpers_share()
    idle = IdleThreads()
    idle.start()
    sleeping = helpers_share()
    idle.end()
    assert sleeping < 0.7 * spinning


def test_switches_are_counted():
    assert involuntary_switches() >= 0
