"""Threads of torch that sleep instead of spin while they wait, for as long as other processes use the same cores.

Between two parts of an operation the threads of GNU OpenMP spin. Beside another busy process a spinning thread uses up
its turn, and the thread that it waits for has to wait for that process: small operations become fifty times slower.
Threads that sleep cost little beside others, but a third of the speed on a quiet machine. GNU OpenMP lets threads sleep
early where it manages more threads than there are cores. So threads that do nothing are started and ended here. The
order in which numbers are added up stays the same.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

_INTERVAL = 0.1
"""Seconds between two looks at the machine."""
_BUSY = 15
"""Times that the system took a core from us, in an interval, from which threads sleep; measured: 6 on two quiet cores
and 27 beside a process that uses both."""
_QUIET = 10
"""Quiet intervals in a row after which threads spin again."""
_PARALLEL = 1 << 17
"""Numbers in a tensor that is large enough for torch to use all its threads."""
_was_busy = threading.Event()
"""Whether threads slept when the last watch of this process ended: the next one begins the same way."""


@contextmanager
def sleeping_when_busy() -> Iterator[None]:
    """Watch the machine while the block runs, where torch uses several threads. Only Linux counts what is watched."""
    if torch.get_num_threads() == 1 or sys.platform != "linux":
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(over, involuntary_switches), name="watches-cores", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def involuntary_switches() -> int:
    """How often the system took a core from a thread of this process."""
    import resource  # Windows has no such module.

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _watch(over: threading.Event, count: Callable[[], int]) -> None:
    idle = IdleThreads()
    if _was_busy.is_set():
        idle.start()
    before, quiet = count(), 0
    while not over.wait(_INTERVAL):
        now = count()
        quiet = 0 if now - before >= _BUSY else quiet + 1
        before = now
        if quiet == 0:
            idle.start()
            _was_busy.set()
        elif quiet >= _QUIET:
            idle.end()
            _was_busy.clear()
    idle.end()


class IdleThreads:
    """More threads than there are cores, which do nothing: their number makes the others sleep."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def start(self) -> None:
        """Start them, if they do not run."""
        if self._threads:
            return
        self._over = threading.Event()
        # Each has a team of its own in OpenMP: itself, and helpers that wait for it.
        number = -(-len(os.sched_getaffinity(0)) // max(1, torch.get_num_threads() - 1))
        self._threads = [
            threading.Thread(target=_be_idle, args=(self._over,), name=f"idle-{place}", daemon=True)
            for place in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End them."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._threads = []


def _be_idle(over: threading.Event) -> None:
    # The first large operation of a thread makes its team.
    torch.zeros(_PARALLEL).add_(1)
    over.wait()
