"""Work that a GPU captures once and replays without the host; where the host is needed it is done step by step."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fedblade.core.errors import Misconfigured, RunFailed

_REFUSE_WAITING = 2
_WAITED = "synchronizing CUDA operation"
"""How torch calls its debug mode that refuses waiting, and what it then says."""


class Unread:
    """Stands for the round in captured work, which is done again in other rounds: whoever reads it is told."""

    def _refuse(self, *_: object) -> Any:
        raise Misconfigured(
            "a term or pass reads view.round, but does not say so, and is captured for all rounds. "
            "Give it by_round = True."
        )

    __int__ = __index__ = __float__ = __bool__ = __hash__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = _refuse


UNREAD: Any = Unread()


def aside(work: Callable[[], Any]) -> Any:
    """Do the work once on a stream of its own, because libraries set themselves up in their first call."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = work()
    torch.cuda.current_stream().wait_stream(stream)
    return result


@dataclass
class Captures:
    """Captures that share one pool of memory: none may run while what another gave is still needed."""

    _pool: Any = None

    def of(self, work: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """A function that does the work again, and what it gave, which is overwritten each time.

        The work must have been done before. Where the host waits for the GPU in it, it is called as it is, and what it
        gave is None. That is found out beforehand, because torch leaves a process that failed to capture with its
        memory, its stream and its random numbers in disorder; where a capture fails all the same, the run ends.
        """
        if _waits(work):
            warnings.warn(
                "the host waits for the GPU in every step of this method, which is therefore not captured and runs "
                "slower",
                stacklevel=2,
            )
            return work, None
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                result = work()
        except (torch.cuda.OutOfMemoryError, Misconfigured):
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise RunFailed(
                f"the GPU cannot capture a step of this method ({reason}). Run it with engine=sequential."
            ) from error
        return graph.replay, result


def _waits(work: Callable[[], Any]) -> bool:
    """Whether the host waits for the GPU in the work, as it does to look at a value; the work is done once for that."""
    before = torch.cuda.get_sync_debug_mode()
    _watch_waiting(_REFUSE_WAITING)
    try:
        aside(work)
    except RuntimeError as error:
        if _WAITED not in str(error):
            raise
        return True
    finally:
        _watch_waiting(before)
    return False


def _watch_waiting(mode: int) -> None:
    with warnings.catch_warnings():
        # That torch calls this a prototype, once in a process.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
