"""A process of a shared run: its threads, its signals, and an end that leaves nobody waiting."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import torch

from fedblade.engines.ranks import LostRank, Ranks, describe_error


@contextlib.contextmanager
def ending_together(ranks: Ranks | None) -> Iterator[None]:
    """Whatever way the block ends early, no other rank waits for this one: rank 0 tells them, or all break off."""
    try:
        yield
    except BaseException as error:
        if ranks is not None:
            _dismiss(ranks, error)
        raise


def _dismiss(ranks: Ranks, error: BaseException) -> None:
    if ranks.broken or ranks.busy or not ranks.is_rank_0:
        ranks.abort()
        return
    with contextlib.suppress(LostRank):
        ranks.broadcast({"kind": "end"} | describe_error(error))


@contextlib.contextmanager
def threads_for(ranks: Ranks | None) -> Iterator[None]:
    """The cores of a machine in equal parts for its ranks; torchrun gives each a single thread."""
    before = torch.get_num_threads()
    try:
        if ranks is not None:
            torch.set_num_threads(max(1, _cores() // ranks.local_world))
        yield
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def undisturbed(ranks: Ranks | None) -> Iterator[None]:
    """Within, a signal waits: torchrun sends one to rank 0 just when it saves what the loss of another has left."""
    if ranks is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if seen:
        signal.raise_signal(seen[0])
