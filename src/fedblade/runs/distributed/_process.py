"""A process of a shared run: its threads, its signals, and an early end that leaves no other rank waiting."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import torch

from fedblade.core.machine import cores
from fedblade.core.stop_signals import STOP_SIGNALS
from fedblade.engines.ranks import LostRank, Ranks, describe_error

_SAYS_WHY = "fedblade: rank 0 says why the run ends"
_RANK_0_SECONDS = 3.0
"""How long rank 1 waits for that notice: rank 0 posts it as soon as its present computation has returned."""


@contextlib.contextmanager
def ending_together(ranks: Ranks) -> Iterator[None]:
    """If the block fails, no other rank keeps waiting for this one: rank 0 sends the error, or all ranks stop."""
    try:
        yield
    except BaseException as error:
        _release_ranks(ranks, error)
        raise


def announce_end(ranks: Ranks | None) -> None:
    """Rank 0, before anything else when a run ends early: let rank 1 know that rank 0 says why."""
    if ranks is not None and ranks.is_rank_0:
        ranks.notices.post(_SAYS_WHY)


def must_say_why(ranks: Ranks) -> bool:
    """Whether this rank must say why the run ends: rank 1 must if rank 0 cannot, because it was killed or hangs.

    From now on signals change nothing: torchrun sends one to all ranks that are left when the first one has ended.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return ranks.rank == 1 and not ranks.notices.appears(_SAYS_WHY, _RANK_0_SECONDS)


def _release_ranks(ranks: Ranks, error: BaseException) -> None:
    announce_end(ranks)
    if ranks.broken or ranks.busy or not ranks.is_rank_0:
        ranks.abort()
        return
    with contextlib.suppress(LostRank):
        ranks.broadcast({"kind": "end"} | describe_error(error))


@contextlib.contextmanager
def threads_for(ranks: Ranks | None) -> Iterator[None]:
    """Divide the cores of a machine among its ranks. By default torchrun gives every rank a single thread."""
    before = torch.get_num_threads()
    try:
        if ranks is not None:
            torch.set_num_threads(max(1, cores() // ranks.local_world))
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def signals_delayed(ranks: Ranks | None) -> Iterator[None]:
    """Signals wait until the end of the block. When a rank is lost, torchrun sends one while rank 0 still saves."""
    if ranks is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, remember) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])
