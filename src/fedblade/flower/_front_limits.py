"""Limits on the requests of one address, so that one peer cannot keep the coordinator from serving the others."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PER_SECOND, _AT_ONCE = 200.0, 1000.0
"""Requests of one address: how many a second over a long time, and how many more at once."""
_LONGEST_WAIT = 5.0
"""Seconds that a request beyond the rate may be made to wait; if it would wait longer, it is refused."""
_MAX_UNDER_WAY = 16
_MAX_KNOWN, _FORGET_SECONDS = 10_000, 60.0


class _Peer:
    """One address: when the requests so far are paid for, and those that are under way."""

    def __init__(self) -> None:
        self.paid_until = 0.0
        self.under_way = asyncio.Semaphore(_MAX_UNDER_WAY)

    def wait(self, now: float) -> float:
        """How long the next request has to wait."""
        self.paid_until = max(self.paid_until, now - _AT_ONCE / _PER_SECOND) + 1 / _PER_SECOND
        return max(0.0, self.paid_until - now)


class Limits:
    """The limits of all addresses."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[bool]:
        """Wait for the turn of a request; whether it may pass, or comes too often."""
        now = time.monotonic()
        if len(self._peers) > _MAX_KNOWN:
            self._peers = {key: peer for key, peer in self._peers.items() if peer.paid_until > now - _FORGET_SECONDS}
        peer = self._peers.setdefault(address, _Peer())
        wait = peer.wait(now)
        if wait > _LONGEST_WAIT:
            peer.paid_until -= 1 / _PER_SECOND
            yield False
            return
        await asyncio.sleep(wait)
        async with peer.under_way:
            yield True
