"""Messages of nodes are fetched piece by piece, and the rest is left where it is when a message is too large.

Flower fetches a whole message into memory before anybody can look at it, and a node may send as much as it likes. For
missing pieces Flower waits for three minutes, and again after each piece that arrives, for two hours in all.
"""

import contextlib
import contextvars
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_NAME_BYTES = 64
"""Bytes of a piece's name, which Flower has in memory too."""
_PATIENCE_SECONDS, _SLOWEST_LINK = 180.0, 2**17
"""How long the pieces of a message may take in all, besides the time that the largest message takes over a link of so
many bytes per second."""
_most = contextvars.ContextVar("most bytes of a message", default=math.inf)


class TooManyBytes(Exception):
    """A message has more bytes than it may have."""


@contextlib.contextmanager
def messages_of_at_most(size: int) -> Iterator[None]:
    """Within this context the pieces of a message, with their names, may have `size` bytes together.

    They may take as long as so many bytes take over the slowest link.
    """
    token = _most.set(size)
    try:
        yield
    finally:
        _most.reset(token)


def within_limit(pull_objects: Callable[..., dict[str, bytes]]) -> Callable[..., dict[str, bytes]]:
    """Flower's function that fetches the pieces of a message, which stops with an error at the limit."""

    def pull_some(
        object_ids: Sequence[str], pull_object_fn: Callable[[str], bytes], **options: Any
    ) -> dict[str, bytes]:
        most, taken, lock = _most.get(), _NAME_BYTES * len(object_ids), threading.Lock()
        if taken > most:
            raise TooManyBytes
        if math.isfinite(most):
            options["max_time"] = _PATIENCE_SECONDS + most / _SLOWEST_LINK

        def pull_piece(object_id: str) -> bytes:
            nonlocal taken
            content = pull_object_fn(object_id)
            with lock:
                taken += len(content)
                if taken > most:
                    raise TooManyBytes
            return content

        return pull_objects(object_ids, pull_piece, **options)

    return pull_some
