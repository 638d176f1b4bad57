"""Work that a GPU captures once and replays without the host; where it cannot be captured it is done step by step."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from fedblade.core.errors import Misconfigured


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
    """Captures that share one pool of memory: none may run while what another gave is still needed.

    A GPU that refused one is not asked again: what it refuses for one size it refuses for all.
    """

    _pool: Any = None
    _refused: bool = False

    def of(self, work: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """A function that does the work again, and what it gave; work that cannot be captured is called as it is.

        What captured work gives is overwritten each time.
        """
        if self._refused:
            return work, None
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                result = work()
        except (torch.cuda.OutOfMemoryError, Misconfigured):
            raise
        except RuntimeError as error:
            self._refused = True
            _recover(stream, self._pool)
            reason = str(error).partition("\n")[0]
            warnings.warn(f"a GPU cannot capture this method, which then runs slower: {reason}", stacklevel=2)
            return work, None
        return graph.replay, result


def _recover(stream: torch.cuda.Stream, pool: Any) -> None:
    """Undo what torch leaves of a failed capture: its stream is the current one, and all memory comes from its pool.

    Without this nothing is ever freed, and the device is soon full.
    """
    torch.cuda.set_stream(stream)
    # An error, if the capture failed so late that the pool was already closed.
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
    torch.cuda.synchronize()
