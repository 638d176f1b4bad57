"""Work that a GPU captures once and replays without the host. Work that needs the host is run as it is."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fedblade.core.errors import Misconfigured, RunFailed

_REFUSE_WAITING = 2
_WAITED = "synchronizing CUDA operation"
"""torch's number for the debug mode that refuses waiting, and the words of its error."""


class HiddenRound:
    """Stands for the round in captured work, which is replayed in other rounds: code that reads it gets an error."""

    def _refuse(self, *_: object) -> Any:
        raise Misconfigured(
            "a term or pass reads view.round, but is captured once for all rounds. "
            "Give the term or pass by_round = True."
        )

    __int__ = __index__ = __float__ = __bool__ = __hash__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = _refuse


HIDDEN_ROUND: Any = HiddenRound()


def on_side_stream(work: Callable[[], Any]) -> Any:
    """Run the work once on a separate stream, because libraries set themselves up in their first call."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = work()
    torch.cuda.current_stream().wait_stream(stream)
    return result


@dataclass
class Captures:
    """Captures that share one pool of memory: none may run while the result of another is still needed."""

    _pool: Any = None

    def capture(self, work: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """A function that repeats the work, and the work's result, which every repetition overwrites.

        The work must have run before. If the host waits for the GPU in it, the work itself is returned, with None as
        its result. This is tried before a capture, because a capture that fails leaves torch's memory, stream and
        random numbers in disorder. If a capture fails all the same, the run ends.
        """
        if _waits(work):
            warnings.warn(
                "the host waits for the GPU in every step of this method, so the step is not captured and runs slower",
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
    """Whether the host waits for the GPU in the work, as it does to read a value; runs the work once to find out."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode(_REFUSE_WAITING)
    try:
        on_side_stream(work)
    except RuntimeError as error:
        if _WAITED not in str(error):
            raise
        return True
    finally:
        _set_sync_debug_mode(before)
    return False


def _set_sync_debug_mode(mode: int) -> None:
    with warnings.catch_warnings():
        # torch warns once in a process that this is a prototype.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
