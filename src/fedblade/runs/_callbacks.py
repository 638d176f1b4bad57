"""Callbacks of a run from Python: listeners, and functions of a round record."""

from collections.abc import Callable, Sequence

import numpy as np

from fedblade.core.errors import Misconfigured
from fedblade.core.listener import ListenerGroup, RoundRecord, RunListener

Callback = RunListener | Callable[[RoundRecord], bool | str | None]
"""A function is asked like `RunListener.stops`; None stands for False."""


class FunctionListener(RunListener):
    """Asks a function after every round whether the run ends."""

    def __init__(self, function: Callable[[RoundRecord], bool | str | None]) -> None:
        self._function = function

    def stops(self, record: RoundRecord) -> bool | str:
        """What the function says."""
        answer = self._function(record)
        if answer is None or isinstance(answer, bool | np.bool_):
            return bool(answer)
        if isinstance(answer, str):
            return answer
        raise Misconfigured(
            f"the callback {self._function!r} gave {answer!r} after round {record['round']}; expected None or False to "
            f"go on, True to end the run, or the reason for its end as a text."
        )


def with_callbacks(listener: RunListener, callbacks: Sequence[Callback]) -> RunListener:
    """The listener and the callbacks as one listener."""
    if isinstance(callbacks, RunListener) or callable(callbacks):
        raise Misconfigured(f"callbacks = {callbacks!r} is not a list; expected callbacks=[{callbacks!r}].")
    return ListenerGroup([listener, *map(_as_listener, callbacks)]) if callbacks else listener


def _as_listener(callback: Callback) -> RunListener:
    if isinstance(callback, RunListener):
        return callback
    if callable(callback) and not isinstance(callback, type):
        return FunctionListener(callback)
    raise Misconfigured(
        f"the callback {callback!r} cannot be called; expected a function of the round record, or an object of a class "
        f"that inherits from fedblade.api.RunListener."
    )
