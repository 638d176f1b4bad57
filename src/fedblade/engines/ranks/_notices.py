"""Notices that ranks leave for each other where they met: in the store of torchrun, which outlives every rank."""

import contextlib
import threading
import time
from typing import Protocol

_LOOK_SECONDS = 0.05


class Store(Protocol):
    """What notices need of a store of torch. A store that cannot be reached raises a RuntimeError."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a value."""

    def check(self, keys: list[str], /) -> bool:
        """Whether there are values under all keys, without waiting for them."""


class Notices:
    """Names that ranks post in a store, and that other ranks look for. A notice is never taken back."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def post(self, name: str) -> None:
        """Leave a notice. If the store cannot be reached, the notice is lost without an error."""
        with contextlib.suppress(RuntimeError):
            self._store.set(name, "posted")

    def appears(self, name: str, seconds: float) -> bool:
        """Whether a notice is there, or comes within so many seconds; False if the store cannot be reached."""
        is_posted = threading.Event()

        def wait_for_notice() -> None:
            deadline = time.monotonic() + seconds
            with contextlib.suppress(RuntimeError):
                while not self._store.check([name]):
                    if time.monotonic() > deadline:
                        return
                    time.sleep(_LOOK_SECONDS)
                is_posted.set()

        # In a thread of its own, because another thread may be using the store for as long as it likes.
        thread = threading.Thread(target=wait_for_notice, name="notices", daemon=True)
        thread.start()
        thread.join(seconds + _LOOK_SECONDS)
        return is_posted.is_set()
