"""Work that a GPU captures once and replays without the host; where it cannot be captured it is done step by step."""

import warnings
from collections.abc import Callable
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


def captured(work: Callable[[], Any], pool: Any) -> tuple[Callable[[], Any], Any]:
    """A function that does the work again, and what it gave; work that cannot be captured is called as it is.

    What captured work gives is overwritten each time. Captures of one pool share its memory: none may run while what
    another gave is still needed.
    """
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            result = work()
    except (torch.cuda.OutOfMemoryError, Misconfigured):
        raise
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        warnings.warn(f"a GPU cannot capture this method, which then runs slower: {reason}", stacklevel=2)
        torch.cuda.synchronize()
        return work, None
    return graph.replay, result
